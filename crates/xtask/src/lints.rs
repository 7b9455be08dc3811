//! Builds that clippy reads: cargo calls `clippy-driver` where it would call `rustc`. It writes the same programs, and says of
//! the workspace's crates what `cargo clippy -- -D warnings` says. So a crate is compiled once, to check it and to run it.

/// The variables of such a build: those that `cargo clippy` sets. To cargo it is another compiler, so such a build shares
/// no crate of the workspace with builds without them.
pub(crate) const LINTED: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The complaints about a crate with this text. `None`: the crate has become a program.
    fn said(name: &str, text: &str) -> Option<String> {
        let folder = std::env::temp_dir().join(format!("lints-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("main.rs");
        std::fs::write(&file, text).unwrap();
        let [(_, driver), arguments] = LINTED;
        // A wrapper is given the compiler's name first.
        let mut command = Command::new(driver);
        command.args(["rustc", "--edition=2024", "--out-dir"]).arg(&folder).arg(&file);
        let output = command.envs([arguments]).output().unwrap();
        let is_there = folder.join("main").is_file();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(output.status.success(), is_there);
        (!is_there).then(|| String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    fn a_build_fails_for_what_the_compiler_or_clippy_warns_of() {
        assert_eq!(said("good", "fn main() {}"), None);
        let of_compiler = said("unused", "fn main() {}\nfn unused() {}").unwrap();
        assert!(of_compiler.contains("-D dead-code"), "{of_compiler}");
        let of_clippy = said("clippy", "fn main() { assert!(String::new().len() == 0) }").unwrap();
        assert!(of_clippy.contains("-D clippy::len-zero"), "{of_clippy}");
    }
}
