//! `cargo xtask install`: installs everything that the README uses below one folder, and removes it.
//!
//! - here — the command line, the builds, and the messages
//! - [`files`] — the files and their places
//! - [`prefix`] — the folder, with a list of the installed files for their removal

pub(crate) mod files;
mod prefix;

use crate::{Failure, Outcome, process};
use files::{Built, Libraries};
use prefix::Prefix;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// The folder. `None`: the usual one.
    prefix: Option<PathBuf>,
    /// Build without optimisation, for tests.
    debug: bool,
    uninstall: bool,
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let Wanted { prefix, debug, uninstall } = parse(arguments)?;
    let folder = prefix.map_or_else(usual_prefix, Ok)?;
    let folder = std::path::absolute(&folder).map_err(|error| failed(&folder, &error))?;
    let prefix = Prefix::at(&folder);
    let failed = |error: std::io::Error| failed(&folder, &error);
    if uninstall {
        let removed = prefix.remove().map_err(failed)?;
        return match removed {
            0 => Err(Failure::Failed(format!("nothing is installed in {}", folder.display()))),
            count => {
                println!("{count} files removed from {}", folder.display());
                Ok(())
            }
        };
    }
    let files =
        files::all(root, &folder, &build(root, if debug { Profile::Debug } else { Profile::Release }, &[], &[])?)?;
    prefix.put(&files).map_err(failed)?;
    println!("{}", told(&folder, files.iter().map(|file| file.to.as_path())));
    Ok(())
}

fn failed(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", folder.display()))
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { prefix: None, debug: false, uninstall: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--debug" => wanted.debug = true,
            "--uninstall" => wanted.uninstall = true,
            "--prefix" => {
                let folder = arguments.next().filter(|folder| !folder.is_empty());
                let folder = folder.ok_or_else(|| Failure::Usage("`--prefix` needs a folder".into()))?;
                wanted.prefix = Some(folder.into());
            }
            other => {
                let takes = "`install` takes `--prefix DIR`, `--debug` and `--uninstall`";
                return Err(Failure::Usage(format!("{takes}, not `{other}`")));
            }
        }
    }
    Ok(wanted)
}

/// Where this machine keeps local programs: for root those of all users, else this user's.
fn usual_prefix() -> Result<PathBuf, Failure> {
    if std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0) {
        return Ok("/usr/local".into());
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| Failure::Failed("HOME is not set; say where with `--prefix DIR`".into()))?;
    Ok(Path::new(&home).join(".local"))
}

/// The installed crates, except the program.
const LIBRARIES: [&str; 5] = ["pcap-shim", "socket-shim", "capi", "capi-request", "capi-net"];

/// How the installed crates are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Without optimisation, for tests.
    Debug,
    Release,
    /// The program alone, without libraries of the system.
    Static,
}

/// The system that the programs are for, where cargo must be told: flags for linking are not for build scripts then.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the installed crates, all at once: by itself, each would want other features of the crates of others, for which
/// cargo would build those again.
///
/// `features`: those that a plain build leaves out.
pub(crate) fn build(
    root: &Path,
    profile: Profile,
    features: &[&str],
    environment: &[(&str, &str)],
) -> Result<Built, Failure> {
    let mut command = process::cargo(root, &["build", "--package", "cli"]);
    if profile == Profile::Static {
        command.args(["--target", TARGET]);
    } else {
        command.args(LIBRARIES.iter().flat_map(|library| ["--package", library]));
    }
    command.args(features.iter().flat_map(|feature| ["--features", feature]));
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    if profile != Profile::Debug {
        command.arg("--release");
    }
    let said = process::output(command.envs(environment.iter().copied()))?;
    let built = |file: &str| {
        artifact(&said, file).ok_or_else(|| Failure::Failed(format!("cargo does not say where it built {file}")))
    };
    let libraries = || -> Result<Libraries, Failure> {
        let (shared, net) = (built("libstreamline.so")?, built("libstreamline_net.so")?);
        Ok(Libraries {
            pcap: built("libstreamline_pcap.so")?,
            sockets: built("libstreamline_sockets.so")?,
            request: built("libstreamline_request.so")?,
            archive: shared.with_extension("a"),
            net_archive: net.with_extension("a"),
            shared,
            net,
        })
    };
    let libraries = if profile == Profile::Static { None } else { Some(libraries()?) };
    Ok(Built { program: built("streamline")?, libraries })
}

/// The file of this name in the output of `cargo build`: a JSON document for each built artifact.
pub(crate) fn artifact(said: &str, name: &str) -> Option<PathBuf> {
    let files =
        process::messages(said).flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    let mut paths = files.filter_map(|file| file.as_str().map(PathBuf::from));
    // The last one: other crates may have built the same name before.
    paths.rfind(|path| path.file_name() == Some(name.as_ref()))
}

/// The list of installed files, and the steps that the user must still take.
fn told<'a>(folder: &Path, files: impl Iterator<Item = &'a Path>) -> String {
    let mut text = format!("installed in {}:", folder.display());
    let mut pages = 0;
    for file in files {
        if file.starts_with("share/man") {
            pages += 1;
        } else {
            text += &format!("\n  {}", file.display());
        }
    }
    text += &format!("\n  share/man/man1/ ({pages} pages)");
    let shown = folder.display();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|entry| entry == folder.join("bin")) {
        text += &format!("\nto run it as `streamline`:       export PATH=\"{shown}/bin:$PATH\"");
    }
    if folder == Path::new("/usr/local") {
        text += "\nfor programs in C, once:         ldconfig";
    } else {
        text += &format!(
            "\nfor programs in C:               export PKG_CONFIG_PATH=\"{shown}/lib/pkgconfig\" LD_LIBRARY_PATH=\"{shown}/lib\""
        );
    }
    text +=
        &format!("\na daemon that systemd starts:    units in {shown}/share/streamline (as root: systemctl link FILE)");
    text + &format!("\nto take all of it away again:    cargo xtask install --uninstall --prefix {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wanted, Failure> {
        parse(&arguments.iter().map(|text| text.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_says_where_and_what() {
        let wanted = Wanted { prefix: Some("/x".into()), debug: true, uninstall: false };
        assert_eq!(parsed(&["--debug", "--prefix", "/x"]), Ok(wanted));
        assert_eq!(parsed(&["--uninstall"]), Ok(Wanted { prefix: None, debug: false, uninstall: true }));
        for wrong in [&["--prefix"][..], &["--prefix", ""], &["/x"], &["--force"]] {
            assert!(matches!(parsed(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn what_was_built_is_found_among_what_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","filenames":["/t/deps/libstreamline.so"]}
no JSON
{"reason":"compiler-artifact","filenames":["/t/x.d","/t/libstreamline_pcap.so","/t/libstreamline.so"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(artifact(said, "libstreamline_pcap.so"), Some("/t/libstreamline_pcap.so".into()));
        assert_eq!(artifact(said, "libstreamline.so"), Some("/t/libstreamline.so".into()));
        assert_eq!(artifact("{}", "streamline"), None);
    }

    #[test]
    fn people_are_told_what_is_missing() {
        let files = ["bin/streamline", "share/man/man1/a.1", "share/man/man1/b.1"].map(Path::new);
        let text = told(Path::new("/nowhere"), files.into_iter());
        for line in ["  bin/streamline", "  share/man/man1/ (2 pages)", "export PATH=\"/nowhere/bin:$PATH\""] {
            assert!(text.contains(line), "{text}");
        }
    }
}
