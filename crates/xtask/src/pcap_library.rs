//! `cargo xtask pcap-library [FOLDER]`: installs the crate `pcap-shim` in libpcap's place, as `libpcap.so.0.8` (Debian's
//! name) and `libpcap.so.1` (the name elsewhere). For `LD_LIBRARY_PATH`, and for programs that ignore preloaded libraries.
//!
//! It is the same file as the preloaded library, under another name. It defines every symbol of libpcap. If no other
//! library in the process does, it opens libpcap by its path. It must not have a SONAME: with that name, the loader
//! would take libpcap itself for the same library.

use crate::install::artifact;
use crate::{Failure, Outcome, process};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const NAME: &str = "libpcap.so.0.8";
const OTHER_NAME: &str = "libpcap.so.1";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let folder = match arguments {
        [] => None,
        [folder] if !folder.starts_with('-') => Some(PathBuf::from(folder)),
        _ => return Err(Failure::Usage("`pcap-library` takes a folder or nothing".into())),
    };
    let build = ["build", "--release", "--package", "pcap-shim", "--message-format", "json-render-diagnostics"];
    let said = process::output(process::cargo(root, &build).stderr(Stdio::inherit()))?;
    let built = artifact(&said, "libstreamline_pcap.so")
        .ok_or_else(|| Failure::Failed("cargo does not say where it built the library".into()))?;
    let folder = folder.unwrap_or_else(|| built.with_file_name("pcap"));
    let installed = install(&built, &folder);
    installed.map_err(|error| Failure::Failed(format!("{}: {error}", folder.display())))?;
    println!("{}", folder.join(NAME).display());
    Ok(())
}

/// Installs the library under both names. Running programs keep their old file.
fn install(library: &Path, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (new, other) = (folder.join(".new"), folder.join(OTHER_NAME));
    std::fs::copy(library, &new)?;
    std::fs::rename(&new, folder.join(NAME))?;
    std::os::unix::fs::symlink(NAME, &new)?;
    std::fs::rename(&new, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_arguments_are_an_error() {
        for arguments in [&["--debug"][..], &["a", "b"]] {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert!(matches!(run(Path::new("."), &arguments), Err(Failure::Usage(_))));
        }
    }

    #[test]
    fn both_names_lead_to_it_also_the_second_time() {
        let folder = std::env::temp_dir().join(format!("xtask-pcap-library-{}", std::process::id()));
        let (library, to) = (folder.join("built.so"), folder.join("to/pcap"));
        std::fs::create_dir_all(&folder).unwrap();
        for content in ["first", "second"] {
            std::fs::write(&library, content).unwrap();
            install(&library, &to).unwrap();
            for name in [NAME, OTHER_NAME] {
                assert_eq!(std::fs::read_to_string(to.join(name)).unwrap(), content);
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
