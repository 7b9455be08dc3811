"""Runs the recipes of columns.md with a program, in a new folder: python3 docs/guide/columns.py target/debug/streamline"""

import os
import re
import subprocess
import sys
import tempfile

guide = os.path.dirname(os.path.abspath(__file__))
program = os.path.abspath(sys.argv[1])
text = open(os.path.join(guide, "columns.md"), encoding="utf-8").read()
recipes = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
assert recipes, "there are no recipes"
with tempfile.TemporaryDirectory() as folder:
    os.symlink(os.path.join(guide, "../../captures"), os.path.join(folder, "captures"))
    os.symlink(program, os.path.join(folder, "streamline"))
    environment = dict(os.environ, PATH=folder + os.pathsep + os.environ["PATH"])
    for language, recipe in recipes:
        print(recipe, flush=True)
        command = ["bash", "-e", "-o", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
        subprocess.run(command + [recipe], cwd=folder, env=environment, check=True)
print(f"{len(recipes)} recipes")
