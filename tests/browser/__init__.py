"""Tests in a real browser: `make test-browser`; `make test` runs them where a chromium is installed."""
