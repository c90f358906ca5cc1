"""Tokens: JWTs that carry a caller's name and permissions, issued and checked as RFC 8725 asks.

One algorithm is pinned by the settings; the header of a token chooses nothing but which of our keys is meant.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import msgspec
from jwt.types import Options

from mainspring.api.auth.access import Caller, read_grants
from mainspring.api.problems import Problem, retry_after
from mainspring.core.instants import DAY, SECOND, Duration, Instant
from mainspring.errors import InvalidInput
from mainspring.settings import Settings

log = logging.getLogger("mainspring")

TYPE: Final = "at+jwt"
LONGEST_TOKEN = 8_192
LONGEST_SUBJECT: Final = 200
LEEWAY: Duration = 5 * SECOND
LONGEST_LIFE: Duration = 400 * DAY
"""No token is valid for longer, and a revocation is remembered for this time."""
REMEMBERED = 1_024
SHORTEST_SECRET = 32
FEWEST_DIFFERENT = 10
LOOK_S = 5.0
"""How often the file of keys is checked for changes."""
LOST_S = 60.0
"""How long keys stay valid while their file cannot be read."""
MAKE_ONE = "make one with `openssl rand -base64 48`, and set MAINSPRING_SECRET"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Keys:
    """The keys that check tokens, by key id, and the key that signs them, if there is one."""

    def __init__(
        self, algorithm: str, checking: Mapping[str | None, Any], signing: Any = None, signs_as: str | None = None
    ) -> None:
        self.algorithm = algorithm
        self.checking = dict(checking)
        self.signing = signing
        self.signs_as = signs_as
        """The id of the key that signs, where there may be several."""


def load_keys(settings: Settings) -> Keys | None:
    """The keys that the settings name; None if they name none. Weak ones are refused."""
    if settings.token_algorithm == "HS256":
        if settings.token_keys is None:
            return (
                None
                if settings.secret is None
                else Keys("HS256", {None: check_secret(settings.secret)}, settings.secret)
            )
        if settings.secret is not None:
            raise InvalidInput("token_keys", settings.token_keys, "is given together with secret", "give one of them")
    if settings.token_keys is None:
        problem = f"has no keys for {settings.token_algorithm}"
        raise InvalidInput("token_keys", None, problem, "name a file with a PEM key or a JWKS")
    if settings.token_algorithm != "HS256" and find_spec("cryptography") is None:
        problem = "needs the package cryptography, which is not installed"
        raise InvalidInput("token_algorithm", settings.token_algorithm, problem, "pip install 'mainspring[keys]'")
    return _load_file(Path(settings.token_keys), settings.token_algorithm)


def check_secret(secret: str) -> str:
    """Refuse a secret that could be guessed. It is never shown."""
    if len(secret.encode()) < SHORTEST_SECRET:
        problem = f"is shorter than {SHORTEST_SECRET} characters"
    elif len(set(secret)) < FEWEST_DIFFERENT:
        problem = f"has fewer than {FEWEST_DIFFERENT} different characters"
    else:
        return secret
    raise InvalidInput("secret", "***", problem, MAKE_ONE)


def check_exposure(settings: Settings, keys: Keys | None) -> None:
    """Without a secret only this machine may reach the API."""
    if keys is None and not is_loopback(settings.host):
        problem = "can be reached from other machines, and there is no secret to identify callers"
        raise InvalidInput("host", settings.host, problem, f"{MAKE_ONE}; or listen on 127.0.0.1")


def _load_file(path: Path, algorithm: str) -> Keys:
    remedy = "name a readable file with " + ("secrets" if algorithm == "HS256" else "a PEM key or a JWKS")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput("token_keys", str(path), f"cannot be read: {error.strerror}", remedy) from None
    try:
        if algorithm == "HS256":
            keys = _from_secrets(data)
        else:
            keys = _from_jwks(data, algorithm) if data.lstrip().startswith(b"{") else _from_pem(data, algorithm)
    except (ValueError, TypeError, KeyError, jwt.PyJWTError) as error:
        raise InvalidInput("token_keys", str(path), f"holds no key for {algorithm}: {error}", remedy) from None
    if not keys.checking:
        raise InvalidInput("token_keys", str(path), f"holds no key for {algorithm}", remedy)
    return keys


def _from_secrets(data: bytes) -> Keys:
    """One on each line. The first signs and all verify, so that an old secret stays valid until its tokens have
    expired."""
    if b"-----BEGIN" in data or data.lstrip().startswith(b"{"):
        raise ValueError("what is there is for another algorithm")  # A public key must never be taken for a secret.
    secret_lines = [line for line in data.decode().splitlines() if line and not line.startswith("#")]
    found: dict[str | None, Any] = {_key_id(line): check_secret(line) for line in secret_lines}
    signs_as = next(iter(found), None)
    return Keys("HS256", found, found.get(signs_as), signs_as)


def _key_id(secret: str) -> str:
    """Identifies a secret without revealing it."""
    return blake2b(secret.encode(), digest_size=6, person=b"key id").hexdigest()


def _from_jwks(data: bytes, algorithm: str) -> Keys:
    entries = msgspec.json.decode(data, type=dict[str, list[dict[str, Any]]])["keys"]
    family = {"RS256": "RSA", "EdDSA": "OKP"}[algorithm]
    fitting = [each for each in entries if each.get("kty") == family and each.get("use", "sig") == "sig"]
    found = {each.get("kid"): jwt.PyJWK(each, algorithm).key for each in fitting}
    return Keys(algorithm, {kid: _checked(key, algorithm) for kid, key in found.items()})


def _from_pem(data: bytes, algorithm: str) -> Keys:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    if b"PRIVATE KEY" not in data:
        return Keys(algorithm, {None: _checked(load_pem_public_key(data), algorithm)})
    private = load_pem_private_key(data, None)
    return Keys(algorithm, {None: _checked(private.public_key(), algorithm)}, private)


def _checked(key: Any, algorithm: str) -> Any:
    """A public key of the family that the algorithm needs, and long enough."""
    from cryptography.hazmat.primitives.asymmetric import ed448, ed25519, rsa

    if algorithm == "RS256" and isinstance(key, rsa.RSAPublicKey) and key.key_size >= 2_048:
        return key
    if algorithm == "EdDSA" and isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return key
    raise ValueError("a key is of another kind, private, or too short")


def issue(
    keys: Keys,
    settings: Settings,
    *,
    subject: str,
    roles: Mapping[str, Sequence[str]],
    lifetime: Duration,
    now: Instant,
) -> tuple[str, str]:
    """A new token and its id."""
    if keys.signing is None:
        raise InvalidInput(
            "token_keys", settings.token_keys, "can only check tokens", "name a file with the private key"
        )
    if not (0 < len(subject) <= LONGEST_SUBJECT and subject.isprintable()):
        raise InvalidInput(
            "subject", subject, "is not a name", f"give up to {LONGEST_SUBJECT} characters that can be shown"
        )
    read_grants(roles)
    token_id = secrets.token_hex(12)  # It is typed after `token revoke`, where a leading hyphen would be an option.
    claims = {
        "iss": settings.token_issuer,
        "aud": settings.token_audience,
        "sub": subject,
        "iat": now / SECOND,
        "nbf": now / SECOND,
        "exp": (now + lifetime) / SECOND,
        "jti": token_id,
        "roles": {namespace: list(names) for namespace, names in roles.items()},
    }
    headers = {"typ": TYPE} | ({} if keys.signs_as is None else {"kid": keys.signs_as})
    return jwt.encode(claims, keys.signing, keys.algorithm, headers=headers), token_id


class Verifier:
    """Checks tokens, and caches recent results: a signature costs more than the rest of a request."""

    def __init__(self, keys: Keys, settings: Settings) -> None:
        self._keys = keys
        self._issuer, self._audience = settings.token_issuer, settings.token_audience
        self._remembered: dict[str, Caller] = {}

    def verify(self, token: str, now: Instant) -> Caller:
        """The holder of this token; Problem, without details, if it is not valid."""
        caller = self._remembered.get(token)
        if caller is None:
            caller = self._check(token, now)
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[token] = caller
        if caller.expires_at is not None and caller.expires_at + LEEWAY <= now:
            raise unauthenticated("the token has expired")
        return caller

    def _check(self, token: str, now: Instant) -> Caller:
        if len(token) > LONGEST_TOKEN:
            raise unauthenticated("the token is too long")
        try:
            *others, last = self._keys_for(jwt.get_unverified_header(token))
            for key in others:
                with suppress(jwt.InvalidSignatureError):
                    return self._caller(self._claims(token, key), now)
            return self._caller(self._claims(token, last), now)
        except (jwt.PyJWTError, InvalidInput, ValueError, TypeError, RecursionError, OverflowError):
            raise unauthenticated("the token is not valid") from None

    def _claims(self, token: str, key: Any) -> Mapping[str, Any]:
        algorithms = [self._keys.algorithm]
        claims: Mapping[str, Any] = jwt.decode(
            token, key, algorithms=algorithms, audience=self._audience, options=_OPTIONS
        )
        return claims

    def _keys_for(self, header: Mapping[str, Any]) -> list[Any]:
        """The keys that a token may be signed with: one, unless it names none and there are several secrets. A token
        without a key id comes from a time when there was one secret."""
        kind = str(header.get("typ", "")).lower().removeprefix("application/")
        if header.get("alg") != self._keys.algorithm or kind != TYPE or "crit" in header or "b64" in header:
            raise ValueError("of another kind")
        key_id, known = header.get("kid"), self._keys.checking
        if key_id in known:
            return [known[key_id]]
        if key_id is not None or (len(known) != 1 and self._keys.algorithm != "HS256"):
            raise ValueError("of an unknown key")
        return list(known.values())

    def _caller(self, claims: Mapping[str, Any], now: Instant) -> Caller:
        known = msgspec.convert(dict(claims), _Claims)
        if known.iss != self._issuer:
            raise ValueError("from another issuer")
        if not known.sub.isprintable():
            raise ValueError("of a subject that cannot be shown")
        begins = max(known.iat, known.nbf if known.nbf is not None else known.iat)
        if begins * SECOND > now + LEEWAY or known.exp * SECOND + LEEWAY <= now or known.exp > _LAST_SECOND:
            raise ValueError("not of this time")
        if known.exp - begins > LONGEST_LIFE / SECOND:
            raise ValueError("good for longer than a revocation is remembered")
        grants = read_grants(known.roles)
        roles = {namespace: frozenset(names) for namespace, names in known.roles.items()}
        return Caller(known.sub, grants, roles, known.jti, round(known.iat * SECOND), round(known.exp * SECOND))


class KeyWatch:
    """The verifier of the keys that are in their file now: a file that has changed is read again, so that keys can be
    added and taken away while servers run."""

    def __init__(self, keys: Keys, settings: Settings, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._verifier = Verifier(keys, settings)
        self._path = None if settings.token_keys is None else Path(settings.token_keys)
        self._seen = self._look()
        self._looked_at = self._good_at = monotonic()

    def verifier(self) -> Verifier:
        """The verifier of one token. Problem if the keys could not be read for too long."""
        now = self._monotonic()
        if self._path is not None and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._refresh(now)
        if now - self._good_at > LOST_S and self._path is not None:
            detail = "the keys that tokens are checked with cannot be read"
            raise Problem("unavailable", detail, remedy="try again soon", headers=retry_after(10))
        return self._verifier

    def _look(self) -> tuple[int, ...] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _refresh(self, now: float) -> None:
        seen = self._look()
        if seen is not None and seen == self._seen:
            self._good_at = now
            return
        try:
            keys = load_keys(self._settings)
        except InvalidInput as error:
            # The file may be incomplete while it is being written. The previous keys stay valid for a while.
            log.warning("keys of tokens could not be read again: %s", error)
            return
        assert keys is not None
        self._verifier, self._seen, self._good_at = Verifier(keys, self._settings), seen, now
        log.info("keys of tokens were read again: %d", len(keys.checking))


# Times and the issuer are checked by ourselves: by the store's clock, and of exactly one type.
_OPTIONS: Options = {
    "require": ["exp", "iat", "sub", "iss", "aud", "jti"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_iss": False,
    "verify_jti": False,
}
_LAST_SECOND = 253_402_300_799


class _Claims(msgspec.Struct):
    """The claims of a token that are checked, with their exact types."""

    iss: str
    sub: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_SUBJECT)]
    jti: str
    iat: float
    exp: float
    roles: dict[str, list[str]]
    nbf: float | None = None


def unauthenticated(detail: str) -> Problem:
    """The answer to every token that is missing or invalid."""
    header = {"WWW-Authenticate": 'Bearer realm="mainspring"'}
    return Problem("unauthenticated", detail, remedy="send `Authorization: Bearer TOKEN`", headers=header)
