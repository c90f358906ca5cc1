# PostgreSQL, and PgBouncer in transaction mode before it. PostgreSQL loads pg_stat_statements, which counts nothing
# unless a database asks for it (pg_stat_statements.track).

find_postgres() {
  programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
  [ -n "$programs" ] || programs=$(dirname "$(command -v postgres 2>/dev/null || echo /nowhere/postgres)")
  bouncer=$(PATH=$PATH:/usr/sbin command -v pgbouncer || true)
  [ -x "$programs/postgres" ] && [ -n "$bouncer" ]
}

packages_postgres() {
  find_postgres && return
  echo postgresql
  echo pgbouncer
  # Debian's package would make and start a cluster that is not ours to use.
  [ "$(id -u)" = 0 ] || return 0
  mkdir -p /etc/postgresql-common/createcluster.d
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/mainspring.conf
}

postgres_answers() { PGPASSWORD=$password "$programs/psql" -qAtX -h 127.0.0.1 -p "$1" -U "$user" -d postgres -c 'SELECT 1' >/dev/null 2>&1; }
postgres_port() { sed -n 's/^port = //p' "$folder/data/postgresql.conf" | tail -1; }
bouncer_port() { sed -n 's/^listen_port = //p' "$folder/pgbouncer.ini" 2>/dev/null || true; }

# A library that is not installed would keep the server from starting.
loadable() { [ ! -e "${programs%/bin}/lib/$1.so" ] || echo "$1"; }

make_postgres() {
  [ -s "$folder/data/PG_VERSION" ] && return
  say "making a database cluster in $folder/data"
  printf '%s\n' "$password" | unprivileged tee "$folder/password" >/dev/null
  unprivileged "$programs/initdb" -D "$folder/data" -U "$user" -A scram-sha-256 --pwfile="$folder/password" -E UTF8 --locale=C.UTF-8 \
    >/dev/null
  unprivileged tee -a "$folder/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
port = $(free_port)
unix_socket_directories = ''
max_connections = ${MAINSPRING_SERVICES_CONNECTIONS:-400}
shared_buffers = 256MB
max_wal_size = 2GB
fsync = ${MAINSPRING_SERVICES_FSYNC:-off}
shared_preload_libraries = '$(loadable pg_stat_statements)'
pg_stat_statements.track = none
CONF
}

# After a server was killed, its last children keep a new one from starting for a moment.
postgres_is_up() {
  runs "$folder/data/postmaster.pid" ||
    unprivileged "$programs/pg_ctl" -D "$folder/data" -l "$folder/postgres.log" -W start >/dev/null 2>&1 || true
  postgres_answers "$(postgres_port)"
}

start_bouncer() {
  runs "$folder/pgbouncer.pid" && return
  local port
  port=$(bouncer_port)
  port=${port:-$(free_port)}
  printf '"%s" "%s"\n' "$user" "$password" | unprivileged tee "$folder/users.txt" >/dev/null
  unprivileged tee "$folder/pgbouncer.ini" >/dev/null <<CONF
[databases]
* = host=127.0.0.1 port=$(postgres_port)
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $folder/users.txt
pool_mode = transaction
max_client_conn = 500
default_pool_size = 10
server_idle_timeout = 5
logfile = $folder/pgbouncer.log
pidfile = $folder/pgbouncer.pid
CONF
  unprivileged "$bouncer" -q -d "$folder/pgbouncer.ini" 2>/dev/null
  wait_until postgres_answers "$port"
}

start_postgres() {
  find_postgres || { say "PostgreSQL or PgBouncer is still missing"; exit 1; }
  make_postgres
  wait_until postgres_is_up
  start_bouncer
}

stop_postgres() {
  find_postgres || return 0
  end "$folder/pgbouncer.pid"
  if runs_postgres; then unprivileged "$programs/pg_ctl" -D "$folder/data" -m fast -w stop >/dev/null; fi
}

runs_postgres() { runs "$folder/data/postmaster.pid"; }

urls_postgres() {
  echo "MAINSPRING_TEST_POSTGRES=postgresql://$user:$password@127.0.0.1:$(postgres_port)"
  echo "MAINSPRING_TEST_PGBOUNCER=postgresql://$user:$password@127.0.0.1:$(bouncer_port)"
}
