import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "proof: long at ARCTIC_PROOF=full, a small size of the same by default"
    )
