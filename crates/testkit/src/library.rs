//! Builds the libraries for other programs, and compiles C programs with them. cargo does not build these libraries for
//! a test, because no test can link them. Each function panics if the build fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `libstreamline_pcap.so`, for libpcap programs, in the profile of this test.
pub fn pcap() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("pcap-shim", "libstreamline_pcap.so"))
}

/// `libstreamline_sockets.so`, for programs with sockets, in the profile of this test.
pub fn sockets() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("socket-shim", "libstreamline_sockets.so"))
}

/// `libstreamline.so` for rings in C, in the profile of this test; `libstreamline.a` lies beside it.
pub fn rings() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("capi", "libstreamline.so"))
}

/// `libstreamline_request.so`, for requests in C, in the profile of this test.
pub fn requests() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("capi-request", "libstreamline_request.so"))
}

/// `libstreamline_net.so`, for sockets in C, in the profile of this test; `libstreamline_net.a` lies beside it.
pub fn net() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("capi-net", "libstreamline_net.so"))
}

/// A file of the repository.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The C programs in a page of the guide that include this header.
///
/// # Panics
///
/// If the page cannot be read.
pub fn guide(page: &str, header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file("docs/guide").join(page)).expect("the page is there");
    let blocks = text.split("```c\n").skip(1).filter_map(|block| block.split_once("```\n"));
    let programs = blocks.map(|(program, _)| program).filter(|program| program.contains(&format!("<{header}>")));
    programs.map(String::from).collect()
}

/// Compiles a C program with the headers of a crate and one of its libraries; the program finds a shared library in its
/// place. `false`: there is no compiler, as standard error says.
///
/// # Panics
///
/// If the compiler finds an error or a warning.
#[must_use]
pub fn compile(source: &Path, program: &Path, package: &str, library: &Path) -> bool {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_GNU_SOURCE"]);
    compiler.arg(source).arg("-I").arg(file("crates").join(package).join("include"));
    compiler.arg("-o").arg(program).arg(library);
    match library.extension().is_some_and(|extension| extension == "a") {
        true => compiler.args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]),
        false => compiler.arg(format!("-Wl,-rpath,{}", library.parent().unwrap_or(Path::new("/")).display())),
    };
    match compiler.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no C compiler `cc`");
            false
        }
        output => {
            let output = output.expect("the compiler runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
    }
}

/// Builds a package; says where its file is. With it the program, which tests have built before: so crates of others have
/// the features that they have there, and nothing is built anew.
fn built(package: &str, file: &str) -> PathBuf {
    // TARGET/PROFILE/deps/test
    let test = std::env::current_exe().expect("a test knows its own program");
    let profile = test.ancestors().nth(2).expect("cargo put the test three folders down");
    let target = profile.parent().expect("cargo put the test three folders down");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "cli", "--package", package, "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    profile.join(file)
}
