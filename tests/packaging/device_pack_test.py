#!/usr/bin/env python3
"""device_pack_test.py - tests/device.sh pack says what it is that the build needs and the machine
lacks.

A pkg-config stands in for the machine's, which knows no CMocka.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PKG_CONFIG = """#!/bin/sh
case "$*" in
*cmocka*) exit 1 ;;
esac
exec /usr/bin/pkg-config "$@"
"""


class DevicePack(unittest.TestCase):
	def test_without_cmocka_it_names_the_package_and_who_installs_it(self):
		with tempfile.TemporaryDirectory() as folder:
			stub = pathlib.Path(folder) / "pkg-config"
			stub.write_text(PKG_CONFIG)
			stub.chmod(0o755)
			env = {
				**os.environ,
				"PATH": f"{folder}:{os.environ['PATH']}",
				"COPPICE_SKIP_DEPS": "1",
				"COPPICE_PACK": f"{folder}/pack",
			}
			command = [ROOT / "tests" / "device.sh", "pack"]
			run = subprocess.run(command, capture_output=True, text=True, timeout=60,
				env=env)
		self.assertEqual(run.returncode, 1)
		self.assertIn("packaging/install-deps.sh check", run.stderr)
		self.assertIn("libcmocka-dev", run.stderr)
		self.assertNotIn("CMake Error", run.stdout + run.stderr)


if __name__ == "__main__":
	unittest.main()
