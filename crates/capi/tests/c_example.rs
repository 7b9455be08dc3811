//! The example in C, compiled and run against both libraries.

use buffer::Descriptor;
use buffer::keeper::client::Named;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::pipe::OpenOptions;
use buffer::ring::RingKind;
use buffer::ring::memory::Geometry;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds both libraries; says where they are. Cargo builds them for no test by itself, for no test can use them.
fn libraries() -> PathBuf {
    // TARGET/PROFILE/deps/test
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "capi", "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    profile.to_owned()
}

/// Compiles the example; `false` where there is no compiler.
fn compile(to: &Path, with: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_GNU_SOURCE"]);
    compiler.arg(root.join("../../examples/c/forward.c")).arg("-I").arg(root.join("include"));
    compiler.arg("-o").arg(to).args(with);
    match compiler.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no C compiler `cc`");
            false
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
    }
}

fn forwards(program: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let keep = |name: &str| {
        let path = folder.path().join(name);
        let options = RingOptions::new(Geometry::new(RingKind::D, 4096, 16));
        let mut keeper = Keeper::create(&path, options).unwrap();
        (path.to_str().unwrap().to_owned(), std::thread::spawn(move || keeper.run()))
    };
    let (from, from_keeper) = keep("from.sock");
    let (to, to_keeper) = keep("to.sock");
    let mut writer = OpenOptions::new().write(&from).unwrap();
    let mut example = Command::new(program).args([&from, &to]).spawn().unwrap();
    let mut reader = OpenOptions::new().read(&to).unwrap();
    let block = |n: u32| vec![n as u8; 50 + (n as usize * 37) % 150];
    let writing = std::thread::spawn(move || {
        for n in 0..1000 {
            let about = Descriptor { time: u64::from(n), ..Descriptor::default() };
            writer.write_block(about, &block(n)).unwrap();
        }
        writer.flush().unwrap();
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(example.wait().unwrap().success());
    let expected: Vec<u8> = (0..1000).map(block).filter(|block| block.len() > 100).flatten().collect();
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    assert_eq!(reader.stat().faults, 1, "no byte was copied: all lay in the first ring");
    drop(reader);
    for (name, keeper) in [(from, from_keeper), (to, to_keeper)] {
        Named::at(&name).unwrap().remove().unwrap();
        keeper.join().unwrap().unwrap();
    }
}

#[test]
fn the_example_forwards_what_it_should_and_copies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = libraries();
    let libraries = libraries.to_str().unwrap();
    let with_shared = folder.path().join("with-shared");
    let run_path = format!("-Wl,-rpath,{libraries}");
    if compile(&with_shared, &["-L", libraries, "-lstreamline", &run_path]) {
        forwards(&with_shared);
    }
    let with_static = folder.path().join("with-static");
    let library = format!("{libraries}/libstreamline.a");
    if compile(&with_static, &[&library, "-lpthread", "-ldl", "-lm", "-lgcc_s"]) {
        forwards(&with_static);
    }
    if folder.path().join("with-shared").exists() {
        let refused = Command::new(with_shared).args(["/nowhere/a.sock", "/nowhere/b.sock"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("No such file"), "{refused:?}");
    }
}
