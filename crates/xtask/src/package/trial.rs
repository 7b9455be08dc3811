//! Installs, runs and removes packages where no Rust is: in a fresh root of Debian, and in one with nothing at all.

use super::{Made, failed};
use crate::{Failure, Outcome, process};
use std::fs;
use std::path::{Path, PathBuf};

/// The input: 18 bodies of HTTP.
const CAPTURE: &str = "captures/web.pcap";

const REQUEST: &str = "pcap /trial/capture.pcap | tcp | http | files dir=/trial/out";

/// Commands in the fresh root. They end at the first one that fails.
const DEB: &str = r#"
! command -v cargo
dpkg --install /trial/package.deb
getent passwd streamline
test -f /usr/lib/systemd/system/streamline.socket
test -s /usr/share/doc/streamline/NOTICES
test -s /usr/share/doc/streamline/streamline.cdx.json
test -s /usr/share/man/man1/streamline.1
test -s /usr/share/bash-completion/completions/streamline
test -s /usr/lib/streamline/libstreamline_pcap.so
streamline --version
streamline run "$REQUEST"
test "$(wc --lines </trial/out/index.jsonl)" = 18
streamline filters tcp >/dev/null
dpkg --remove streamline
! test -e /usr/bin/streamline
! test -e /usr/lib/streamline
"#;

pub(super) fn run(made: &Made<'_>) -> Outcome {
    deb(made)?;
    alone(made)?;
    println!("package: the deb was installed, ran and was removed; the program of the tar ran in an empty root");
    Ok(())
}

/// The file in the folder of packages with this ending.
fn package(made: &Made<'_>, ending: &str) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(&made.out).map_err(|error| failed(&made.out, &error))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| Failure::Failed(format!("there is no `{ending}` in {}", made.out.display())))
}

fn deb(made: &Made<'_>) -> Outcome {
    let fresh = made.work.join("fresh");
    let _ = fs::remove_dir_all(&fresh);
    let system = ["--variant=minbase", "bookworm"];
    process::output(process::program(made.root, "debootstrap", &system).arg(&fresh))?;
    fs::create_dir_all(fresh.join("trial")).map_err(|error| failed(&fresh, &error))?;
    copy(&package(made, ".deb")?, &fresh.join("trial/package.deb"))?;
    copy(&made.root.join(CAPTURE), &fresh.join("trial/capture.pcap"))?;
    let mut command = process::program(made.root, "chroot", &[]);
    process::run(command.arg(&fresh).args(["sh", "-exc", DEB]).env("REQUEST", REQUEST))
}

fn alone(made: &Made<'_>) -> Outcome {
    let empty = made.work.join("empty");
    let _ = fs::remove_dir_all(&empty);
    fs::create_dir_all(empty.join("trial")).map_err(|error| failed(&empty, &error))?;
    copy(&made.root.join(CAPTURE), &empty.join("trial/capture.pcap"))?;
    let mut tar = process::program(made.root, "tar", &["--extract", "--strip-components=1", "--file"]);
    process::run(tar.arg(package(made, ".tar.xz")?).arg("--directory").arg(&empty))?;
    let mut command = process::program(made.root, "chroot", &[]);
    process::run(command.arg(&empty).args(["/bin/streamline", "run", REQUEST]))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).map(drop).map_err(|error| failed(from, &error))
}
