//! deb, rpm, tar and an OCI image of a folder.

use super::staged::Staged;
use super::{Made, VERSION, failed};
use crate::{Failure, process};
use std::path::PathBuf;

/// A kind of package.
#[derive(Debug)]
pub(super) struct Format {
    pub name: &'static str,
    /// It has the program alone, without libraries of the system, for systems of any age and kind.
    pub is_static: bool,
    /// Makes it, and says where it is.
    pub make: fn(&Made<'_>, &Staged) -> Result<PathBuf, Failure>,
}

pub(super) static FORMATS: [Format; 4] = [
    Format { name: "deb", is_static: false, make: |made, staged| nfpm(made, staged, "deb") },
    Format { name: "rpm", is_static: false, make: |made, staged| nfpm(made, staged, "rpm") },
    Format { name: "tar", is_static: true, make: tar },
    Format { name: "oci", is_static: true, make: image },
];

/// What nfpm reads. `{...}` is filled in.
const NFPM: &str = r#"name: streamline
arch: amd64
platform: linux
version: {version}
section: net
maintainer: Streamline <streamline@example.org>
description: |
  Captures, filters and reassembles network traffic.
  One line, a request, describes a data path; Streamline builds exactly that path and runs it.
license: Apache-2.0 OR MIT
mtime: {time}
contents:
  - src: {folder}/usr
    dst: /usr
    type: tree
scripts:
  postinstall: {scripts}/after-install.sh
  preremove: {scripts}/before-removal.sh
overrides:
  deb:
    depends: [libc6 (>= 2.34), libgcc-s1]
    recommends: [libpcap0.8]
  rpm:
    depends: [glibc >= 2.34, libgcc]
    recommends: [libpcap]
"#;

fn nfpm(made: &Made<'_>, staged: &Staged, format: &str) -> Result<PathBuf, Failure> {
    let config = NFPM
        .replace("{version}", VERSION)
        .replace("{time}", &made.date)
        .replace("{folder}", &staged.folder.display().to_string())
        .replace("{scripts}", &made.root.join("crates/xtask/src/package").display().to_string());
    let file = made.work.join("nfpm.yaml");
    std::fs::write(&file, config).map_err(|error| failed(&file, &error))?;
    let to = made.out.join(format!("streamline-{VERSION}.x86_64.{format}"));
    let mut command = process::program(made.root, "nfpm", &["package", "--packager", format]);
    command.arg("--config").arg(&file).arg("--target").arg(&to).env("SOURCE_DATE_EPOCH", &made.time);
    process::output(&mut command)?;
    Ok(to)
}

/// Options by which two archives of the same files are the same.
fn archive(made: &Made<'_>) -> [String; 6] {
    ["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", &format!("--mtime=@{}", made.time)]
        .map(String::from)
}

fn tar(made: &Made<'_>, staged: &Staged) -> Result<PathBuf, Failure> {
    let to = made.out.join(format!("streamline-{VERSION}.x86_64.tar.xz"));
    let mut command = process::program(made.root, "tar", &[]);
    command.args(archive(made)).args(["--xz", "--transform", &format!("s,^usr,streamline-{VERSION},S"), "--file"]);
    process::run(command.arg(&to).arg("--directory").arg(&staged.folder).arg("usr"))?;
    Ok(to)
}

/// An image of the program alone: `podman load`, `docker load`, or `skopeo copy oci-archive:FILE ...`.
fn image(made: &Made<'_>, staged: &Staged) -> Result<PathBuf, Failure> {
    let (storage, layout) = (made.work.join("buildah"), made.work.join("oci"));
    let _ = std::fs::remove_dir_all(&layout);
    let buildah = |arguments: &[&str]| {
        let mut command = process::program(made.root, "buildah", &[]);
        command.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
        command.args(["--storage-driver", "vfs"]).args(arguments).env("BUILDAH_ISOLATION", "chroot");
        process::output(&mut command)
    };
    let container = buildah(&["from", "scratch"])?;
    let container = container.trim();
    let program = staged.folder.join("usr/bin/streamline").display().to_string();
    buildah(&["copy", container, &program, "/usr/bin/streamline"])?;
    let entry = ["--entrypoint", r#"["/usr/bin/streamline"]"#, "--cmd", "--help"];
    buildah(&[&["config"], &entry[..], &[container]].concat())?;
    let named = format!("oci:{}:{VERSION}", layout.display());
    buildah(&["commit", "--quiet", "--timestamp", &made.time, "--rm", container, &named])?;
    let to = made.out.join(format!("streamline-{VERSION}.x86_64.oci.tar"));
    let mut command = process::program(made.root, "tar", &[]);
    process::run(command.args(archive(made)).arg("--file").arg(&to).arg("--directory").arg(&layout).arg("."))?;
    Ok(to)
}
