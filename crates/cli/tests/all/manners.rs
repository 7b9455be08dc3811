//! Good manners of a command: Ctrl-C, a closed standard output, a full disk, a file that changes while it is read.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures").join(name)
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(PROGRAM)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn ends_soon(mut child: Child) -> Output {
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(path).map_or(0, |data| data.len()) == 0 {
        assert!(Instant::now() < deadline, "{} did not come", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_leaves_whole_files_an_index_and_the_table() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(capture("web.pcap"), folder.path().join("web.pcap")).unwrap();
    // The second path has output once the first has seen everything: a following source flushes when it pauses.
    let request = "pcap web.pcap follow=yes | { tcp | files dir=out + json file=frames.json }";
    let request = request.replace("json file=frames.json", "save seen.pcap");
    let child = start(folder.path(), &["run", &request]);
    wait_for(&folder.path().join("seen.pcap.part"));
    signal(&child, "-INT");
    let output = ends_soon(child);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped before the input ended"), "{}", stderr(&output));
    assert!(stderr(&output).lines().any(|line| line.starts_with("tcp ")), "{}", stderr(&output));

    let whole = tempfile::tempdir().unwrap();
    std::fs::copy(capture("web.pcap"), whole.path().join("web.pcap")).unwrap();
    let output = ends_soon(start(whole.path(), &["run", "-q", "pcap web.pcap | tcp | files dir=out"]));
    assert_eq!(output.status.code(), Some(0));
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(folder.join("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(folder.path()), names(whole.path()));
    for name in names(whole.path()) {
        let read = |folder: &Path| std::fs::read(folder.join("out").join(&name)).unwrap();
        if name != "index.jsonl" {
            assert_eq!(read(folder.path()), read(whole.path()), "{name:?}");
        }
    }
}

/// `timeout -s INT` signals its child and then its group.
#[test]
fn a_second_ctrl_c_at_once_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture("web.pcap");
    for _ in 0..10 {
        let mut child = start(folder.path(), &["run", "pcap - | save seen.pcap overwrite=yes"]);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&std::fs::read(&file).unwrap()).unwrap();
        wait_for(&folder.path().join("seen.pcap.part"));
        let id = rustix::process::Pid::from_child(&child);
        for _ in 0..2 {
            rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        }
        let output = ends_soon(child);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("stopped before the input ended"), "{}", stderr(&output));
        drop(stdin);
    }
}

#[test]
fn a_later_ctrl_c_abandons_and_it_is_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let many = vec![capture("web.pcap").display().to_string(); 200].join(" ");
    let request = format!("pcap {many} | inspect");
    for (options, says) in [(&[][..], "finishing what has come; Ctrl-C again to abandon\n"), (&["-q"], "")] {
        let mut child = start(folder.path(), &[&["run"], options, &[&request]].concat());
        // The output is not read, so that it cannot finish.
        let deadline = Instant::now() + Duration::from_secs(20);
        while rustix::io::ioctl_fionread(child.stdout.as_ref().unwrap()).unwrap() < 32 << 10 {
            assert!(Instant::now() < deadline, "it writes nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
        let first = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it did not end");
            // The first signals count as one. A later one comes after the message.
            let said = rustix::io::ioctl_fionread(child.stderr.as_ref().unwrap()).unwrap() as usize;
            if first.elapsed() < Duration::from_millis(500) || said >= says.len() {
                signal(&child, "-INT");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(first.elapsed() >= Duration::from_secs(1), "at once");
        let output = child.wait_with_output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(2));
        assert_eq!(stderr(&output), says);
    }
}

#[test]
fn ctrl_c_is_heard_while_standard_input_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    for first in [None, Some(std::fs::read(capture("web.pcap")).unwrap())] {
        let mut child = start(folder.path(), &["run", "pcap - | count"]);
        let mut stdin = child.stdin.take().unwrap();
        if let Some(bytes) = &first {
            stdin.write_all(bytes).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, "-TERM");
        let output = ends_soon(child);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let blocks = if first.is_some() { 207 } else { 0 };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with(&format!("{{\"blocks\":{blocks},")), "{text}");
        drop(stdin);
    }
}

#[test]
fn a_closed_standard_output_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture("web.pcap").display().to_string();
    // Many copies of the capture: more than a pipe holds.
    let many = vec![file; 200].join(" ");
    for sink in ["inspect", "http | json", "dns | json", "save -"] {
        let request = format!("pcap {many} | {sink}");
        let mut child = start(folder.path(), &["run", "-q", &request]);
        let mut first = Vec::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        if sink == "save -" {
            first.resize(24, 0);
            stdout.read_exact(&mut first).unwrap();
        } else {
            stdout.read_until(b'\n', &mut first).unwrap();
        }
        drop(stdout);
        let output = ends_soon(child);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{sink}");
    }
}

#[test]
fn a_full_disk_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture("web.pcap").display().to_string();
    for sink in ["count | json file=/dev/full", "save /dev/full overwrite=yes"] {
        let output = ends_soon(start(folder.path(), &["run", "-q", &format!("pcap {file} | {sink}")]));
        assert_eq!(output.status.code(), Some(1), "{sink}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(PROGRAM)
        .args(["run", "-q", &format!("pcap {file} | count")])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: cannot write to standard output"), "{}", stderr(&output));
}

#[test]
fn where_nothing_may_be_written_nothing_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, Permissions::from_mode(0o555)).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Root may write everywhere. So the child runs as `nobody`, with a program that it may read.
    let program = folder.path().join("streamline");
    std::fs::copy(PROGRAM, &program).unwrap();
    for (request, expected) in [
        ("pcap - | save locked/x.pcap", "cannot write locked/x.pcap: Permission denied"),
        ("pcap - | http | json file=locked/x.json", "cannot write locked/x.json: Permission denied"),
        ("pcap - | tcp | files dir=locked/x", "cannot create files in `locked/x`: Permission denied"),
    ] {
        let mut command = Command::new(&program);
        command.args(["run", request]).current_dir(folder.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let mut child = command.spawn().unwrap();
        // No data comes, but more may come later.
        let _input = child.stdin.take();
        let output = ends_soon(child);
        assert_eq!(output.status.code(), Some(1), "{request}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{request}: {}", stderr(&output));
    }
}

#[test]
fn a_file_cut_while_it_is_read_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.pcap");
    std::fs::copy(capture("web.pcap"), &file).unwrap();
    let child = start(folder.path(), &["run", "pcap web.pcap follow=yes | save seen.pcap"]);
    wait_for(&folder.path().join("seen.pcap.part"));
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1000).unwrap();
    let output = ends_soon(child);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("was cut at byte 1000"), "{}", stderr(&output));
}

#[test]
fn a_folder_without_captures_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "no capture").unwrap();
    std::fs::write(folder.path().join("empty.pcap"), "").unwrap();
    for (input, says) in
        [(".", "no capture"), ("empty.pcap", "empty"), ("notes.txt", "not a capture"), ("gone", "No such file")]
    {
        let output = ends_soon(start(folder.path(), &["run", "-q", &format!("pcap {input} | count")]));
        assert_eq!(output.status.code(), Some(1), "{input}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{input}: {}", stderr(&output));
    }
}
