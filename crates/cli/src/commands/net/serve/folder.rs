//! The folder of `net serve`: its files and folders, and nothing outside. The kernel resolves each path (openat2,
//! RESOLVE_BENEATH). It follows a symlink only within the folder, even if a path is renamed meanwhile.

use super::super::http::target::{encoded, escaped};
use crate::exit::CommandError;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsString};
use std::fmt::Write;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) struct Folder(OwnedFd);

pub(super) enum Found {
    File { file: File, len: u64, modified: u64 },
    Folder(OwnedFd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no such file or folder, it is of another kind, or the path leads out of the folder.
    Absent,
    /// The process may not read it.
    Denied,
    Failed,
}

const ENTRIES: usize = 10_000;

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Folder, CommandError> {
        let failed = |errno: Errno| CommandError::Failed(format!("{}: {errno}", path.display()));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = Folder(rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?);
        match folder.find(&[]) {
            Ok(_) => Ok(folder),
            Err(_) => Err(CommandError::Failed(format!(
                "{}: the system does not resolve paths below it (openat2 needs Linux 5.6)",
                path.display()
            ))),
        }
    }

    /// Opens the object at a path. The names come from [`super::super::http::target::Target`].
    pub(super) fn find(&self, names: &[OsString]) -> Result<Found, Refused> {
        let mut path = PathBuf::from(".");
        path.extend(names);
        // Do not block on a FIFO without a writer, and do not take a terminal as controlling terminal.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = loop {
            match rustix::fs::openat2(&self.0, &path, flags, Mode::empty(), within) {
                // A rename happened while the kernel resolved `..` of a symlink.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => break opened.map_err(refused)?,
            }
        };
        let stat = rustix::fs::fstat(&opened).map_err(refused)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Found::File {
                file: File::from(opened),
                len: u64::try_from(stat.st_size).unwrap_or(0),
                modified: u64::try_from(stat.st_mtime).unwrap_or(0),
            }),
            FileType::Directory => Ok(Found::Folder(opened)),
            _ => Err(Refused::Absent),
        }
    }
}

fn refused(errno: Errno) -> Refused {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO | Errno::NODEV => {
            Refused::Absent
        }
        Errno::ACCESS | Errno::PERM => Refused::Denied,
        _ => Refused::Failed,
    }
}

/// The page that lists a folder's entries by name. `names` is the folder's path from the root.
pub(super) fn page(folder: &OwnedFd, names: &[OsString]) -> Result<String, Refused> {
    let mut entries = Vec::new();
    let mut more = 0u64;
    for entry in rustix::fs::Dir::read_from(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        if is_self(entry.file_name()) {
            continue;
        }
        if entries.len() == ENTRIES {
            more += 1;
            continue;
        }
        entries.push((entry.file_name().to_bytes().to_vec(), entry.file_type() == FileType::Directory));
    }
    entries.sort();
    let way: String = names.iter().map(|name| format!("{}/", name.to_string_lossy())).collect();
    let title = escaped(&format!("/{way}"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body><h1>{title}</h1>\n<ul>\n"
    );
    if !names.is_empty() {
        page.push_str("<li><a href=\"../\">../</a></li>\n");
    }
    for (name, is_folder) in entries {
        let slash = if is_folder { "/" } else { "" };
        let (link, text) = (encoded(&name), escaped(&String::from_utf8_lossy(&name)));
        // Writing to a string cannot fail. `./` keeps a colon in the name from making it a scheme.
        let _ = writeln!(page, "<li><a href=\"./{link}{slash}\">{text}{slash}</a></li>");
    }
    page.push_str("</ul>\n");
    if more > 0 {
        let _ = writeln!(page, "<p>and {more} more</p>");
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn is_self(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Content types by extension. Text is UTF-8.
const TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp4", "video/mp4"),
    ("pcap", "application/vnd.tcpdump.pcap"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

pub(super) fn content_type(name: &OsString) -> &'static str {
    let end = name.as_bytes().rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let found = TYPES.iter().find(|(one, _)| end.eq_ignore_ascii_case(one.as_bytes()) && end.len() < name.len());
    found.map_or("application/octet-stream", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_found() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir_all(inner.join("sub")).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        std::fs::write(inner.join("a.txt"), "abc").unwrap();
        symlink("../secret", inner.join("out")).unwrap();
        symlink("..", inner.join("up")).unwrap();
        symlink(inner.join("a.txt"), inner.join("absolute")).unwrap();
        symlink("/proc/self/exe", inner.join("magic")).unwrap();
        symlink("../a.txt", inner.join("sub/in")).unwrap();
        symlink("loop", inner.join("loop")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, inner.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let folder = Folder::open(&inner).unwrap();
        let found = |names: &[&str]| {
            let names: Vec<OsString> = names.iter().map(OsString::from).collect();
            folder.find(&names).map(|found| match found {
                Found::File { len, .. } => Some(len),
                Found::Folder(_) => None,
            })
        };
        for (names, expected) in [
            (&[][..], Ok(None)),
            (&["a.txt"], Ok(Some(3))),
            (&["sub"], Ok(None)),
            (&["sub", "in"], Ok(Some(3))),
            (&["out"], Err(Refused::Absent)),
            (&["up"], Err(Refused::Absent)),
            (&["up", "secret"], Err(Refused::Absent)),
            (&["absolute"], Err(Refused::Absent)),
            (&["magic"], Err(Refused::Absent)),
            (&["loop"], Err(Refused::Absent)),
            (&["fifo"], Err(Refused::Absent)),
            (&["a.txt", "b"], Err(Refused::Absent)),
            (&["..", "secret"], Err(Refused::Absent)),
            (&["/etc/passwd"], Err(Refused::Absent)),
        ] {
            assert_eq!(found(names), expected, "{names:?}");
        }
        assert_eq!(found(&["x".repeat(300).as_str()]), Err(Refused::Absent));
    }

    #[test]
    fn pages_quote_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a<b>&\"c", "x:y"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        let Ok(Found::Folder(descriptor)) = opened.find(&[]) else { panic!("a folder") };
        let page = page(&descriptor, &["<p>".into()]).unwrap();
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("<li>")).collect();
        assert_eq!(
            lines,
            [
                "<li><a href=\"../\">../</a></li>",
                "<li><a href=\"./a%3Cb%3E%26%22c\">a&lt;b&gt;&amp;&quot;c</a></li>",
                "<li><a href=\"./b\">b</a></li>",
                "<li><a href=\"./d/\">d/</a></li>",
                "<li><a href=\"./x%3Ay\">x:y</a></li>",
            ]
        );
        assert!(page.contains("<title>/&lt;p&gt;/</title>"), "{page}");
    }

    #[test]
    fn types_go_by_the_end_of_the_name() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.b.PNG", "image/png"),
            ("a.unknown", "application/octet-stream"),
            ("html", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(content_type(&name.into()), expected, "{name}");
        }
    }
}
