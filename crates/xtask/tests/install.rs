//! `cargo xtask install` into a temporary folder: uses the installed files as the README does, and removes them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder.canonicalize().unwrap())
    }

    fn install(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("install").arg("--prefix").arg(self.0.join("prefix")).args(more).current_dir(root());
        // In this test's profile: cargo need not rebuild what other tests use.
        if cfg!(debug_assertions) && !more.contains(&"--uninstall") {
            command.arg("--debug");
        }
        command.output().unwrap()
    }

    fn prefix(&self, path: &str) -> PathBuf {
        self.0.join("prefix").join(path)
    }

    /// A program that finds the installed files, with the settings that `install` prints.
    fn with(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.prefix("bin").display()));
        command.env("PKG_CONFIG_PATH", self.prefix("lib/pkgconfig")).env("LD_LIBRARY_PATH", self.prefix("lib"));
        command.env_remove("STREAMLINE_PCAP_LIBRARY").current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    stdout + &stderr
}

/// The output of a command. `None`: its program is not installed here.
fn printed(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{command:?}: {}", said(&output));
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            eprintln!("skipped: {}: {error}", command.get_program().display());
            None
        }
    }
}

#[test]
fn what_is_installed_works_and_is_taken_away() {
    let folder = Folder::new("install");
    let installed = folder.install(&[]);
    assert!(installed.status.success(), "{}", said(&installed));
    assert!(said(&installed).contains("export PATH=\""), "{}", said(&installed));

    std::fs::copy(root().join("captures/web.pcap"), folder.0.join("web.pcap")).unwrap();
    let counted = printed(folder.with("streamline").args(["run", "-q", "pcap web.pcap | http | count"])).unwrap();
    assert!(counted.starts_with("{\"blocks\":"), "{counted}");
    // The library is found beside the program.
    let environment = printed(folder.with("streamline").args(["pcap", "--", "env"])).unwrap();
    let preload = environment.lines().find(|line| line.starts_with("LD_PRELOAD=")).unwrap();
    assert!(preload.contains(folder.prefix("lib/streamline").to_str().unwrap()), "{preload}");
    let text = |path: &str| std::fs::read_to_string(folder.prefix(path)).unwrap();
    assert!(text("share/man/man1/streamline.1").contains(".SH FILTERS"));
    assert!(text("share/man/man1/streamline-pipe-create.1").contains("hold"));
    assert!(text("share/bash-completion/completions/streamline").contains("_streamline_request"));
    assert!(text("share/streamline/streamline.service").contains(folder.prefix("bin/streamline").to_str().unwrap()));
    if let Some(flags) = printed(folder.with("pkg-config").args(["--cflags", "--libs", "streamline"])) {
        let mut compiler = folder.with("cc");
        compiler.arg(root().join("examples/c/forward.c")).args(["-o", "forward"]).args(flags.split_whitespace());
        if printed(&mut compiler).is_some() {
            let output = folder.with(folder.0.join("forward")).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains("usage: forward"), "{}", said(&output));
        }
    }
    if let Some(flags) = printed(folder.with("pkg-config").args(["--cflags", "--libs", "streamline_request"])) {
        let mut compiler = folder.with("cc");
        compiler.arg(root().join("examples/c/messages.c")).args(["-o", "messages"]).args(flags.split_whitespace());
        if printed(&mut compiler).is_some() {
            let lines = printed(folder.with(folder.0.join("messages")).arg("web.pcap")).unwrap();
            assert!(lines.starts_with("192.88.99.42 100 0\n"), "{lines}");
        }
    }

    // A second installation works, but not over a foreign file.
    let again = folder.install(&[]);
    assert!(again.status.success(), "{}", said(&again));
    let removed = folder.install(&["--uninstall"]);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(std::fs::read_dir(folder.0.join("prefix")).unwrap().count(), 0, "nothing is left");
    std::fs::create_dir_all(folder.prefix("bin")).unwrap();
    std::fs::write(folder.prefix("bin/streamline"), "theirs").unwrap();
    let refused = folder.install(&[]);
    assert!(!refused.status.success() && said(&refused).contains("bin/streamline is in the way"), "{}", said(&refused));
    assert_eq!(std::fs::read_to_string(folder.prefix("bin/streamline")).unwrap(), "theirs");
    assert!(!folder.prefix("lib").exists());
    let removed = folder.install(&["--uninstall"]);
    assert!(said(&removed).contains("nothing is installed in"), "{}", said(&removed));
}
