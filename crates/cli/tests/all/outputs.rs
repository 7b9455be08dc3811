//! Output files: folders without write permission, full disks, limits, and links that another process plants. Mounts
//! are made in a namespace of the test, which needs root.

use packet::LinkType;
use packet::pcap_file::{Resolution, write_header, write_record_header};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::packets::{CLIENT, Conversation, SERVER};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A capture of `streams` connections, each of which sends a mebibyte.
fn capture(streams: u16) -> Vec<u8> {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 262_144, Resolution::Nanoseconds);
    for stream in 0..streams {
        let mut connection = Conversation::open((CLIENT.0, 10_000 + stream), SERVER, 1000);
        for part in 0..1024_u32 {
            connection.send(0, &[(part % 251) as u8; 1024]);
        }
        connection.fin(0).fin(1);
        for (time, frame) in &connection.frames {
            write_record_header(&mut file, *time, frame.len() as u32, frame.len() as u32, Resolution::Nanoseconds);
            file.extend_from_slice(frame);
        }
    }
    file
}

/// Runs a shell script in its own mount namespace. `None`: that cannot be had.
fn in_namespace(folder: &Path, script: &str) -> Option<Output> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command
    };
    let can = unshare().arg("mount -t tmpfs none /mnt").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("skipped (rights): nothing can be mounted here (that takes root, and unshare)");
        return None;
    }
    Some(unshare().arg(script).current_dir(folder).env("PROGRAM", PROGRAM).output().unwrap())
}

/// Each file in an index exists and has the listed length. There are no other files.
fn check_index(folder: &Path) -> Vec<Value> {
    let index = std::fs::read_to_string(folder.join("index.jsonl")).unwrap();
    assert!(index.is_empty() || index.ends_with('\n'));
    let rows: Vec<Value> = index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        let file = folder.join(row["file"].as_str().unwrap());
        assert_eq!(std::fs::metadata(&file).unwrap().len(), row["size"].as_u64().unwrap(), "{}", file.display());
    }
    assert_eq!(folder.read_dir().unwrap().count(), rows.len() + 1, "files that are not listed");
    rows
}

fn frames_of(file: &Path) -> u64 {
    let request = format!("pcap {} | count", file.display());
    let output = Command::new(PROGRAM).args(["run", &request]).output().unwrap();
    assert!(output.status.success() && !said(&output).contains("warning"), "{}", said(&output));
    let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
    counted["blocks"].as_u64().unwrap()
}

/// 16 MiB of streams on a disk of 8 MiB: written files are complete, and one error says what is wrong.
#[test]
fn a_disk_that_fills_up_ends_the_run_with_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.pcap"), capture(16)).unwrap();
    let run = |sink: &str, before: &str| {
        let _ = std::fs::remove_dir_all(folder.path().join("kept"));
        let script = format!(
            "mkdir -p disk && mount -t tmpfs -o size=8m none disk && {before} \
             \"$PROGRAM\" run -q 'pcap long.pcap | {sink}'; status=$?; cp -r disk kept; exit $status"
        );
        in_namespace(folder.path(), &script)
    };
    for (min_free, why) in [("", "must stay free"), ("min-free=0", "No space left on device")] {
        let Some(output) = run(&format!("tcp | files dir=disk/out {min_free}"), "") else { return };
        assert_eq!((output.status.code(), said(&output).lines().count()), (Some(1), 1), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
        let rows = check_index(&folder.path().join("kept/out"));
        assert!((3..=8).contains(&rows.len()), "{rows:?}");
        let whole = rows.iter().filter(|row| row["state"] == "complete").count();
        assert!(whole >= 3, "{rows:?}");

        let output = run(&format!("save disk/x.pcap {min_free}"), "").unwrap();
        assert_eq!((output.status.code(), said(&output).lines().count()), (Some(1), 1), "{}", said(&output));
        assert!(said(&output).contains(why) && said(&output).contains("is in disk/x.pcap"), "{}", said(&output));
        assert!(!folder.path().join("kept/x.pcap.part").exists());
        assert!(frames_of(&folder.path().join("kept/x.pcap")) > 3000);

        let output = run(&format!("save disk/x.pcapng rotate-size=1M {min_free}"), "").unwrap();
        assert_eq!((output.status.code(), said(&output).lines().count()), (Some(1), 1), "{}", said(&output));
        let series: Vec<_> =
            folder.path().join("kept").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!((4..=8).contains(&series.len()), "{series:?}");
        series.iter().for_each(|file| assert!(frames_of(file) > 0));

        let lines = "head 12000 | sample 1 | inspect bytes=800";
        let output = run(&format!("{lines} file=disk/x.txt {min_free}"), "").unwrap();
        assert_eq!((output.status.code(), said(&output).lines().count()), (Some(1), 1), "{}", said(&output));
        let text = std::fs::read_to_string(folder.path().join("kept/x.txt")).unwrap();
        assert!(text.len() > 3 << 20 && text.ends_with('\n'), "{} bytes", text.len());
    }
    // The disk is full before the run: no packet is read.
    let fill = "head -c 8000k /dev/zero > disk/other;";
    for sink in ["tcp | files dir=disk/out", "save disk/x.pcap", "count | json file=disk/x.json"] {
        let output = run(sink, fill).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("must stay free; make room, or set another min-free"), "{}", said(&output));
        assert_eq!(folder.path().join("kept").read_dir().unwrap().count(), 1, "nothing is left behind");
    }
}

/// A file that may not grow (RLIMIT_FSIZE) ends the run like a full disk does. No signal kills it.
#[test]
fn a_file_as_long_as_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.pcap"), capture(3)).unwrap();
    let run = |request: &str| {
        let script = format!("ulimit -f 1000; exec {PROGRAM} run -q 'pcap long.pcap | {request}'");
        Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap()
    };
    let output = run("save x.pcap");
    assert_eq!((output.status.code(), said(&output).contains("File too large")), (Some(1), true), "{}", said(&output));
    assert!(frames_of(&folder.path().join("x.pcap")) > 100);
    let output = run("tcp | files dir=out");
    assert_eq!((output.status.code(), said(&output).contains("File too large")), (Some(1), true), "{}", said(&output));
    check_index(&folder.path().join("out"));
}

/// The request's own limit is no failure: open files end there, and a message says so.
#[test]
fn max_bytes_ends_a_sink() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("long.pcap"), capture(4)).unwrap();
    let run = |request: &str| {
        let request = format!("pcap long.pcap | {request}");
        let output = Command::new(PROGRAM).args(["run", &request]).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(
            said(&output).matches("max-bytes is reached: nothing more is written to `").count(),
            1,
            "{}",
            said(&output)
        );
        output
    };
    let bytes = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    run("tcp | files dir=out max-bytes=2500k");
    let rows = check_index(&folder.path().join("out"));
    let total: u64 = rows.iter().map(|row| row["size"].as_u64().unwrap()).sum();
    assert!(total <= 2500 << 10 && total > 2490 << 10, "{total}");
    let (last, whole) = rows.split_last().unwrap();
    assert_eq!((&last["state"], &last["reason"]), (&"truncated".into(), &"limit".into()));
    assert!(whole.len() == 2 && whole.iter().all(|row| row["state"] == "complete"));

    for name in ["x.pcap", "x.pcapng"] {
        run(&format!("save {name} max-bytes=1M"));
        assert!(bytes(name) <= 1 << 20 && bytes(name) > (1 << 20) - 4096, "{name}: {}", bytes(name));
        assert!(frames_of(&folder.path().join(name)) > 900);
    }
    run("save series.pcap rotate-size=300k max-bytes=1M");
    let series: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let series: Vec<_> = series.iter().filter(|path| path.to_str().unwrap().contains("series_")).collect();
    assert_eq!(series.len(), 4);
    assert!(series.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>() <= 1 << 20);

    run("inspect file=x.txt max-bytes=100k");
    let text = std::fs::read_to_string(folder.path().join("x.txt")).unwrap();
    assert!(text.len() <= 100 << 10 && text.len() > 99 << 10 && text.ends_with('\n'), "{}", text.len());
    let output = run("{ inspect file=y.txt max-bytes=100k + count }");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"blocks\":41"), "{output:?}");
}

/// The command reports the error before it reads a packet: standard input stays open and empty.
#[test]
fn folders_that_cannot_be_written_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bound")).unwrap();
    std::fs::create_dir(folder.path().join("used")).unwrap();
    std::fs::write(folder.path().join("used/index.jsonl"), "").unwrap();
    std::fs::write(folder.path().join("a-file"), "").unwrap();
    symlink("a-file", folder.path().join("link")).unwrap();
    let check = |output: &Output, request: &str, expected: &str| {
        assert_eq!((output.status.code(), said(output).lines().count()), (Some(1), 1), "{request}: {}", said(output));
        assert!(said(output).contains(expected), "{request}: {}", said(output));
    };
    let nothing = "its file system lets nothing be created there";
    for (sink, expected) in [
        ("tcp | files dir=/proc/x", nothing),
        ("tcp | files dir=/proc", nothing),
        ("save /proc/x.pcap", nothing),
        ("count | json file=/proc/x.json", nothing),
        ("tcp | files dir=a-file", "`a-file` is not a folder"),
        ("tcp | files dir=a-file/below", "Not a directory"),
        ("tcp | files dir=used", "holds the index of an earlier run"),
        ("save a-file", "a-file exists (overwrite=yes replaces it)"),
        ("save link overwrite=yes", "link is a symbolic link (name the file that it leads to)"),
        ("count | json file=link overwrite=yes", "link is a symbolic link"),
        ("count | json file=used", "used is a folder"),
    ] {
        if sink.contains("/proc") && !rustix::process::geteuid().is_root() {
            continue; // Others hear that they may not.
        }
        let request = format!("pcap - | {sink}");
        let mut command = Command::new(PROGRAM);
        command.args(["run", &request]).current_dir(folder.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        check(&child.wait_with_output().unwrap(), &request, expected);
        drop(input);
    }
    for sink in ["tcp | files dir=bound", "tcp | files dir=bound/new", "save bound/x.pcap", "count | json file=bound/x"]
    {
        let script =
            "mount --bind bound bound && mount -o remount,ro,bind bound && exec \"$PROGRAM\" run 'pcap - | SINK'";
        let script = script.replace("SINK", sink);
        let Some(output) = in_namespace(folder.path(), &script) else { return };
        check(&output, sink, "Read-only file system");
    }
    assert_eq!(folder.path().join("bound").read_dir().unwrap().count(), 0);
}

/// A request that reads a capture from a pipe, in parts.
struct Fed {
    child: Option<Child>,
    bytes: Vec<u8>,
    given: usize,
}

impl Fed {
    fn start(folder: &Path, sink: &str) -> Fed {
        let request = format!("pcap - | {sink}");
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-q", &request]).current_dir(folder).stdin(Stdio::piped()).stderr(Stdio::piped());
        Fed { child: Some(command.spawn().unwrap()), bytes: capture(8), given: 0 }
    }

    /// Writes this number of eighths of the capture.
    fn give(&mut self, eighths: usize) {
        let to = self.given + self.bytes.len() / 8 * eighths;
        let input = self.child.as_mut().unwrap().stdin.as_mut().unwrap();
        // The request may have failed by then; its end shows that.
        let _ = input.write_all(&self.bytes[self.given..to]);
        self.given = to;
    }

    /// Writes the rest and closes the pipe.
    fn end(mut self) -> Output {
        let left = self.bytes.split_off(self.given);
        let mut child = self.child.take().unwrap();
        let _ = child.stdin.take().unwrap().write_all(&left);
        child.wait_with_output().unwrap()
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Another process replaces the output folder by a link to its own folder, and plants links under the next file names.
/// No file outside is touched.
#[test]
fn links_that_come_during_the_run_lead_nowhere() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    std::fs::create_dir(at("outside")).unwrap();
    std::fs::write(at("outside/precious"), "kept").unwrap();
    let untouched = || {
        assert_eq!(std::fs::read(at("outside/precious")).unwrap(), b"kept");
        assert_eq!(at("outside").read_dir().unwrap().count(), 1);
    };
    let mut run = Fed::start(base.path(), "tcp | files dir=out");
    run.give(2);
    until("the first file", || at("out").read_dir().is_ok_and(|mut files| files.next().is_some()));
    std::fs::rename(at("out"), at("moved")).unwrap();
    symlink(at("outside"), at("out")).unwrap();
    for stream in 3..8 {
        let name = format!("010.000.000.001.{:05}-010.000.000.002.00080", 10_000 + stream);
        symlink(at("outside/precious"), at("moved").join(name)).unwrap();
    }
    run.give(6);
    until("the last file", || at("moved").read_dir().unwrap().count() >= 8 + 1 + 5);
    let output = run.end();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    untouched();
    let index = std::fs::read_to_string(at("moved/index.jsonl")).unwrap();
    let rows: Vec<Value> = index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 8, "{index}");
    for row in &rows {
        let found = std::fs::symlink_metadata(at("moved").join(row["file"].as_str().unwrap())).unwrap();
        assert_eq!((found.is_file(), found.len()), (true, 1 << 20));
    }

    // A series: the folder is swapped, and links take the name of the next file and its `.part`.
    std::fs::create_dir(at("series")).unwrap();
    let _ = std::fs::remove_file(at("out"));
    let mut run = Fed::start(base.path(), "save series/x.pcap rotate-size=1M");
    run.give(3);
    until("the second file", || at("series").read_dir().unwrap().count() >= 2);
    std::fs::rename(at("series"), at("series-moved")).unwrap();
    symlink(at("outside"), at("series")).unwrap();
    for number in 5..9 {
        for ending in ["pcap", "pcap.part"] {
            let name = format!("x_{number:05}_19700101000000.{ending}");
            symlink(at("outside/precious"), at("series-moved").join(name)).unwrap();
        }
    }
    run.give(5);
    let output = run.end();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("x_00005_19700101000000.pcap exists"), "{}", said(&output));
    untouched();
}
