//! The examples in C, from `examples/c` and the guide, compiled and run with both libraries.

use buffer::Descriptor;
use buffer::keeper::client::Named;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::pipe::OpenOptions;
use buffer::ring::RingKind;
use buffer::ring::memory::Geometry;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use testkit::library;

fn keep(folder: &Path, name: &str) -> (String, JoinHandle<io::Result<()>>) {
    let path = folder.join(name);
    let options = RingOptions::new(Geometry::new(RingKind::D, 4096, 16));
    let mut keeper = Keeper::create(&path, options).unwrap();
    (path.to_str().unwrap().to_owned(), std::thread::spawn(move || keeper.run()))
}

fn remove(name: &str, keeper: JoinHandle<io::Result<()>>) {
    Named::at(name).unwrap().remove().unwrap();
    keeper.join().unwrap().unwrap();
}

fn forwards(program: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let (from, from_keeper) = keep(folder.path(), "from.sock");
    let (to, to_keeper) = keep(folder.path(), "to.sock");
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
    remove(&from, from_keeper);
    remove(&to, to_keeper);
}

#[test]
fn the_example_forwards_what_it_should_and_copies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = library::file("examples/c/forward.c");
    let with_shared = folder.path().join("with-shared");
    if library::compile(&source, &with_shared, "capi", library::rings()) {
        forwards(&with_shared);
    }
    let with_static = folder.path().join("with-static");
    if library::compile(&source, &with_static, "capi", &library::rings().with_extension("a")) {
        forwards(&with_static);
    }
    if folder.path().join("with-shared").exists() {
        let refused = Command::new(with_shared).args(["/nowhere/a.sock", "/nowhere/b.sock"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("No such file"), "{refused:?}");
    }
}

#[test]
fn the_guides_example_counts_what_is_written() {
    let examples = library::guide("embedding.md", "streamline.h");
    let [example] = &examples[..] else { panic!("the guide has another: test it here, too") };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("total.c"), folder.path().join("total"));
    std::fs::write(&source, example).unwrap();
    if !library::compile(&source, &program, "capi", library::rings()) {
        return;
    }
    let (name, keeper) = keep(folder.path(), "ring.sock");
    let mut writer = OpenOptions::new().write(&name).unwrap();
    let example = Command::new(&program).arg(&name).stdout(Stdio::piped()).spawn().unwrap();
    for length in 0..1000 {
        writer.write_block(Descriptor::default(), &vec![0; length % 100 + 1]).unwrap();
    }
    writer.close();
    let output = example.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1000 blocks, 50500 bytes\n", "{output:?}");
    assert!(output.status.success());
    remove(&name, keeper);
    let refused = Command::new(&program).arg("/nowhere/a.sock").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}
