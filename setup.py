"""Packaging. Versions that are known to work together are pinned in ``constraints.txt``."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
PACKAGES = ("specs", "refcompiler", "fastpath", "conformance")
VERSION = re.search(r'^VERSION = "(.+)"$', (HERE / "specs/version.py").read_text(), re.M)[1]

# What the fast path's CPU kernels are made with. It is the default backend, so the base has it too.
CPU = ["numba>=0.61"]

EXTRAS = {
    "cpu": CPU,
    "gpu": ["triton>=3.6,<3.10; platform_system == 'Linux'"],
    "onnxrt": ["onnxruntime>=1.23", "onnx>=1.19", "onnxscript>=0.5"],
    "openvino": ["openvino>=2026.0"],
    "tvm": ["apache-tvm>=0.27"],
    # The HTML page of a conformance report.
    "report": ["jinja2>=3.1"],
    # The models of the suite ``models`` that this project does not write itself.
    "models": ["transformers>=5.0"],
    # The test command: lint, types and tests.
    "test": [
        "mypy>=2.0",
        "pytest>=8.0",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "ruff>=0.12",
    ],
}

setup(
    name="refcompiler",
    version=VERSION,
    description="What torch.compile means, in readable Python; and a conformance suite for it",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=[part for name in PACKAGES for part in (name, f"{name}.*")]),
    package_data={
        "conformance": ["**/*.jinja", "**/*.css", "**/*.js", "**/*.toml"],
        "specs": ["**/*.json"],
    },
    install_requires=[
        "torch>=2.11,<2.14",
        "numpy>=1.26",
        "sympy>=1.13.3",
        "mpmath>=1.3",
        "networkx>=3.2",
        "click>=8.1",
        "rich>=13.7",
        "hypothesis>=6.100",
        *CPU,
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": ["refcompiler = conformance.__main__:main"],
        "torch_dynamo_backends": [
            "fastpath = fastpath:backend",
            "reference = refcompiler.backends.reference:backend",
        ],
        # torch has another backend of this name, and ours is not to hide it there.
        "refcompiler_backends": ["cudagraphs = fastpath.graphs.backend:cudagraphs"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Software Development :: Compilers",
        "Topic :: Software Development :: Testing",
    ],
)
