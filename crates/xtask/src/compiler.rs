//! A compiler for cargo: `rustc`, `clippy` and `rustdoc` in one. It writes the same programs, fails for what
//! `cargo clippy -- -D warnings` says of the workspace's crates, and writes the documents of a crate behind it. So cargo compiles
//! a crate once, where three commands compile it three times: to run it, to check it, and for the documents of crates above it.

use crate::{Failure, Outcome, process};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Variables of a build.
pub(crate) type Environment = Vec<(&'static str, OsString)>;

/// Clippy's own variable for its arguments, as `cargo clippy` sets it.
const DENIED: (&str, &str) = ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");

/// The variables of a build by this compiler. To cargo it is another compiler, so such a build shares no crate of the workspace
/// with builds without them.
pub(crate) fn environment(root: &Path) -> Result<Environment, Failure> {
    let folder = root.join("target/lanes");
    let compiler = folder.join("compiler");
    // A copy: cargo writes a new `xtask` in the course of the build. Then the program that runs has no name any more, but this one.
    let copied = std::fs::create_dir_all(&folder).and_then(|()| std::fs::copy("/proc/self/exe", &compiler));
    copied.map_err(|error| Failure::Failed(format!("{}: {error}", compiler.display())))?;
    Ok(vec![("RUSTC_WORKSPACE_WRAPPER", compiler.into()), (DENIED.0, DENIED.1.into())])
}

/// Whether these are the arguments of a compiler that cargo calls by another. The first one is the path of `rustc`.
pub(crate) fn is_asked(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|first| Path::new(first).file_name() == Some(OsStr::new("rustc")))
}

/// Compiles a crate, and documents it. A program that fails has said why, to cargo.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    commands(arguments).into_iter().try_for_each(|mut command| {
        let status = command.status().map_err(|error| process::absent(&command, &error))?;
        if status.success() { Ok(()) } else { Err(Failure::Reported) }
    })
}

fn commands(arguments: &[String]) -> Vec<Command> {
    let programs = [("clippy-driver", Some(arguments.to_vec())), ("rustdoc", documented(arguments))];
    let with = |(program, given): (&str, Option<Vec<String>>)| {
        let mut command = Command::new(program);
        command.args(given?);
        Some(command)
    };
    programs.into_iter().filter_map(with).collect()
}

/// The program that has documents: those of others would have the names of libraries, as their manifests say.
const PROGRAM: &str = "xtask";

/// What `cargo doc` says of a program.
const OF_PROGRAM: [&str; 2] = ["--document-private-items", "-Arustdoc::private_intra_doc_links"];

/// The arguments of `rustdoc` for the crate that a compiler is given these for. `None` for all that `cargo doc` leaves out:
/// tests, examples, most programs, the questions that cargo asks a compiler.
fn documented(arguments: &[String]) -> Option<Vec<String>> {
    let (mut folder, mut name, mut hash) = (None, None, "");
    let mut documents = vec!["-Dwarnings".to_string()];
    let mut given = arguments.iter().skip(1).map(String::as_str);
    while let Some(word) = given.next() {
        match word {
            "--test" => return None,
            source if source.ends_with(".rs") && source.contains("examples/") => return None,
            emit if emit.starts_with("--emit=") => continue,
            "--out-dir" => {
                folder = given.next();
                continue;
            }
            _ => documents.push(word.into()),
        }
        if matches!(word, "-C" | "--crate-name" | "--crate-type") {
            let value = given.next()?;
            documents.push(value.into());
            match (word, value.strip_prefix("extra-filename=")) {
                ("--crate-name", _) => name = Some(value),
                ("--crate-type", _) if value == "bin" && name != Some(PROGRAM) => return None,
                ("--crate-type", _) if value == "bin" => documents.extend(OF_PROGRAM.map(String::from)),
                (_, Some(value)) => hash = value,
                _ => {}
            }
        }
    }
    // The compiler's folder is TARGET/PROFILE/deps. Each crate has a folder, for two may have one name.
    let target = Path::new(folder?).ancestors().nth(2)?;
    documents.push(format!("--out-dir={}/lanes/documents/{}{hash}", target.display(), name?));
    Some(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about a crate with this text. `None`: there are none.
    fn said(name: &str, kind: &str, text: &str) -> Option<String> {
        let folder = std::env::temp_dir().join(format!("compiler-{name}-{kind}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("debug/deps")).unwrap();
        let file = folder.join("file.rs");
        std::fs::write(&file, text).unwrap();
        let (file, out) = (file.to_str().unwrap(), folder.join("debug/deps"));
        let given =
            ["rustc", "--crate-name", name, "--crate-type", kind, "--edition=2024", "-C", "extra-filename=-1", file];
        let more = ["--emit=dep-info,metadata,link", "--out-dir", out.to_str().unwrap()];
        let given: Vec<String> = given.into_iter().chain(more).map(String::from).collect();
        let complaints = commands(&given).into_iter().find_map(|mut command| {
            let output = command.env(DENIED.0, DENIED.1).output().unwrap();
            (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
        });
        let is_documented = folder.join(format!("lanes/documents/{name}-1/{name}/index.html")).is_file();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(complaints.is_none(), is_documented);
        complaints
    }

    #[test]
    fn a_crate_fails_for_what_the_compiler_or_clippy_or_rustdoc_warns_of() {
        assert_eq!(said("good", "lib", "//! [`one`]\n/// One.\npub fn one() {}"), None);
        let rows = [
            ("unused", "lib", "fn unused() {}", "-D dead-code"),
            ("length", "bin", "fn main() { assert!(String::new().len() == 0) }", "-D clippy::len-zero"),
            ("link", "lib", "//! [`nothing`]", "-D rustdoc::broken-intra-doc-links"),
            (PROGRAM, "bin", "//! [`nothing`]\nfn main() {}", "-D rustdoc::broken-intra-doc-links"),
        ];
        for (name, kind, text, complaint) in rows {
            let said = said(name, kind, text).unwrap();
            assert!(said.contains(complaint), "{said}");
        }
    }

    #[test]
    fn what_cargo_documents_is_documented() {
        let documented = |line: &str| documented(&line.split(' ').map(String::from).collect::<Vec<_>>());
        let of_library = "/bin/rustc --crate-name a src/lib.rs --crate-type lib --emit=link -C extra-filename=-7 --out-dir /t/debug/deps -L x";
        let expected = "-Dwarnings --crate-name a src/lib.rs --crate-type lib -C extra-filename=-7 -L x --out-dir=/t/lanes/documents/a-7";
        assert_eq!(documented(of_library).unwrap().join(" "), expected);
        // A library for C has its name as it is.
        let for_c = of_library.replace("-C extra-filename=-7 ", "");
        assert!(documented(&for_c).unwrap().ends_with(&["--out-dir=/t/lanes/documents/a".into()]));
        for [part, other] in [["--emit=link", "--test"], ["src/lib", "examples/a"], ["type lib", "type bin"]] {
            let other = of_library.replace(part, other);
            assert_eq!(documented(&other), None);
        }
        assert_eq!(documented("/bin/rustc -vV"), None);
        assert_eq!(documented("/bin/rustc - --crate-name ___ --print=cfg --crate-type bin --crate-type rlib"), None);
    }
}
