//! Which files are installed, and where they go below the prefix.

use crate::{Failure, process};
use std::path::{Path, PathBuf};

/// Files that cargo built.
pub(crate) struct Built {
    pub program: PathBuf,
    /// `None`: the program alone.
    pub libraries: Option<Libraries>,
}

pub(crate) struct Libraries {
    /// libpcap's functions over live rings.
    pub pcap: PathBuf,
    /// The C library's socket calls over flows.
    pub sockets: PathBuf,
    /// Rings for programs in C.
    pub shared: PathBuf,
    pub archive: PathBuf,
    /// Requests for programs in C.
    pub request: PathBuf,
    /// Sockets over flows for programs in C.
    pub net: PathBuf,
    pub net_archive: PathBuf,
}

#[derive(Debug)]
pub(crate) struct File {
    pub to: PathBuf,
    pub content: Content,
    pub is_program: bool,
}

#[derive(Debug)]
pub(crate) enum Content {
    Copy(PathBuf),
    Made(Vec<u8>),
}

impl File {
    pub(crate) fn copy(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> File {
        File { to: to.into(), content: Content::Copy(from.into()), is_program: false }
    }

    pub(crate) fn made(text: impl Into<Vec<u8>>, to: impl Into<PathBuf>) -> File {
        File { to: to.into(), content: Content::Made(text.into()), is_program: false }
    }
}

/// Completion scripts: the shell, and the folder in which it looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/streamline"),
    ("zsh", "share/zsh/site-functions/_streamline"),
    ("fish", "share/fish/vendor_completions.d/streamline.fish"),
];

/// The files of an installation in `folder`.
pub(crate) fn all(root: &Path, folder: &Path, built: &Built) -> Result<Vec<File>, Failure> {
    let program = |arguments: &[&str]| process::output(std::process::Command::new(&built.program).args(arguments));
    let mut files = vec![File { is_program: true, ..File::copy(&built.program, "bin/streamline") }];
    files.extend(built.libraries.iter().flat_map(|built| libraries(root, folder, built)));
    for (shell, to) in COMPLETIONS {
        files.push(File::made(program(&["completions", shell])?, to));
    }
    for page in program(&["man", "--list"])?.lines() {
        let words: Vec<&str> = page.split(' ').skip(1).collect();
        let text = program(&[&["man"], &words[..]].concat())?;
        files.push(File::made(text, format!("share/man/man1/{}.1", page.replace(' ', "-"))));
    }
    files.extend(units(root, folder)?);
    Ok(files)
}

fn libraries(root: &Path, folder: &Path, built: &Libraries) -> Vec<File> {
    vec![
        // Where `streamline pcap` and `streamline net run` look for them, but no linker does.
        File::copy(&built.pcap, "lib/streamline/libstreamline_pcap.so"),
        File::copy(&built.sockets, "lib/streamline/libstreamline_sockets.so"),
        File::copy(&built.shared, "lib/libstreamline.so"),
        File::copy(&built.archive, "lib/libstreamline.a"),
        File::copy(root.join("crates/capi/include/streamline.h"), "include/streamline.h"),
        File::copy(&built.request, "lib/libstreamline_request.so"),
        File::copy(root.join("crates/capi-request/include/streamline_request.h"), "include/streamline_request.h"),
        File::copy(&built.net, "lib/libstreamline_net.so"),
        File::copy(&built.net_archive, "lib/libstreamline_net.a"),
        File::copy(root.join("crates/capi-net/include/streamline_net.h"), "include/streamline_net.h"),
        File::made(
            package_config(folder, "streamline", "Rings between processes, from C", "-lpthread -ldl -lm"),
            "lib/pkgconfig/streamline.pc",
        ),
        File::made(
            package_config(folder, "streamline_request", "Requests inside a program, from C", ""),
            "lib/pkgconfig/streamline_request.pc",
        ),
        File::made(
            package_config(folder, "streamline_net", "Sockets over flows, from C", "-lpthread -ldl -lm"),
            "lib/pkgconfig/streamline_net.pc",
        ),
    ]
}

/// What systemd and its kin want, which start the program from where it is.
fn units(root: &Path, folder: &Path) -> Result<Vec<File>, Failure> {
    let dist = root.join("dist");
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", dist.display()));
    let program = folder.join("bin/streamline").display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dist).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let name = path.file_name().unwrap_or_default();
        files.push(File::made(text.replace("/usr/bin/streamline", &program), Path::new("share/streamline").join(name)));
    }
    files.sort_by(|one, other| one.to.cmp(&other.to));
    Ok(files)
}

/// What `pkg-config streamline` reads.
fn package_config(folder: &Path, library: &str, description: &str, private: &str) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {library}\n\
         Description: {description}\nVersion: {}\nLibs: -L${{libdir}} -l{library}\n\
         Libs.private: {private}\nCflags: -I${{includedir}}\n",
        folder.display(),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_start_the_program_where_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let units = units(&root, Path::new("/opt/x")).unwrap();
        let service = units.iter().find(|file| file.to.ends_with("streamline.service")).unwrap();
        let Content::Made(text) = &service.content else { panic!("it is changed") };
        let text = String::from_utf8_lossy(text);
        assert!(text.contains("ExecStart=/opt/x/bin/streamline daemon") && !text.contains("/usr/bin/"), "{text}");
    }
}
