"""The version of this program: packages, images and the chart take it from here."""

from typing import Final

VERSION: Final = "1.0.0rc1"
