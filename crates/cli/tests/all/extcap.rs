//! extcap, the protocol by which Wireshark asks for interfaces and captures: called as Wireshark does, and by tshark
//! itself. Tests with a device are in `live/programs.rs`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// A folder like Wireshark's: this program under its other name, a capture and a FIFO.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(PROGRAM, folder.path().join("streamline-extcap")).unwrap();
        let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
        std::fs::copy(web, folder.path().join("web.pcap")).unwrap();
        assert!(Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap().success());
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("streamline-extcap"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        self.program(arguments).output().unwrap()
    }

    fn capture(&self, request: &str, more: &[&str]) -> (File, Child) {
        // Non-blocking, so that a capture that never writes cannot hang the test.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let fifo = File::options().read(true).custom_flags(flags).open(self.path("fifo")).unwrap();
        let mut command = self.program(&["--capture", "--extcap-interface", "sl:request", "--fifo"]);
        command.arg(self.path("fifo")).args(["--request", request]).args(more);
        (fifo, command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The frames of a file, without the rest of its content.
    fn frames(&self, file: &str) -> Vec<u8> {
        let request = format!("pcap {file} | save frames.pcap overwrite=yes precision=ns");
        let output = Command::new(PROGRAM).args(["run", "-q", &request]).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(self.path("frames.pcap")).unwrap()
    }
}

fn read_to_end(mut fifo: File, mut child: Child) -> (Vec<u8>, Output) {
    let (mut got, began) = (Vec::new(), Instant::now());
    loop {
        let ended = child.try_wait().unwrap().is_some();
        match fifo.read_to_end(&mut got) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        if ended {
            return (got, child.wait_with_output().unwrap());
        }
        if began.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read_some(fifo: &mut File, count: usize) -> Vec<u8> {
    let (mut got, began) = (Vec::new(), Instant::now());
    while got.len() < count {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing comes");
        let _ = fifo.read_to_end(&mut got);
        std::thread::sleep(Duration::from_millis(2));
    }
    got
}

#[test]
fn what_it_is_asked_it_answers() {
    let folder = Folder::new();
    let rows: &[(&[&str], &str)] = &[
        (&["--extcap-interfaces"], "\ninterface {value=sl:request}{display=Streamline: a request}\n"),
        (&["--extcap-interfaces", "--extcap-version=4.0"], "extcap {version="),
        (&["--extcap-interface", "sl:request", "--extcap-dlts"], "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"),
        (&["--extcap-interface=sl:lo", "--extcap-dlts"], "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"),
        (&["--extcap-interface", "sl:lo", "--extcap-config"], "arg {number=0}{call=--snaplen}"),
        (&["--extcap-interface", "sl:request", "--extcap-config"], "arg {number=0}{call=--request}"),
    ];
    for (arguments, expected) in rows {
        let output = folder.ask(arguments);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn filters_are_right_where_nothing_is_said() {
    let folder = Folder::new();
    let check = |filter: &str| {
        let output = folder.ask(&["--extcap-interface", "sl:lo", "--extcap-capture-filter", filter]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let wrong = check("udp porrt 53");
    if wrong.contains("libpcap0.8") {
        eprintln!("skipped: libpcap is not installed");
        return;
    }
    assert!(wrong.contains("syntax error"), "{wrong}");
    assert_eq!(check("udp port 53"), "");
    assert_eq!(check(""), "");
}

#[test]
fn captures_go_into_the_fifo() {
    let folder = Folder::new();
    let rows: &[(&str, &[&str], &str)] = &[
        ("pcap web.pcap", &[], "pcap web.pcap"),
        ("pcap web.pcap | head 5", &[], "pcap web.pcap | head 5"),
        ("(pcap,web.pcap) > (head,5)", &["--extcap-capture-filter", ""], "pcap web.pcap | head 5"),
        ("pcap web.pcap", &["--extcap-capture-filter", "tcp[13] & 2 != 0"], "pcap web.pcap | bpf \"tcp[13] & 2 != 0\""),
        ("pcap web.pcap | bpf \"tcp port 1\"", &["--daemon", ""], "pcap web.pcap | bpf \"tcp port 1\""),
    ];
    for (request, more, same) in rows {
        let (fifo, child) = folder.capture(request, more);
        let (got, output) = read_to_end(fifo, child);
        std::fs::write(folder.path("got.pcapng"), got).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{request}: {said}");
        let got = folder.frames("got.pcapng");
        let direct = format!("{same} | save same.pcapng overwrite=yes");
        let ran = Command::new(PROGRAM).args(["run", "-q", &direct]).current_dir(folder.0.path()).status().unwrap();
        assert!(ran.success());
        assert!(got == folder.frames("same.pcapng"), "{request}: {} bytes", got.len());
    }
}

#[test]
fn captures_end_when_nobody_reads_and_when_told_to() {
    let folder = Folder::new();
    let follow = "pcap web.pcap follow=yes";
    // The reader closes the FIFO: with no more frames, a write cannot notice that.
    let (mut fifo, child) = folder.capture(follow, &[]);
    read_some(&mut fifo, 100);
    drop(fifo);
    let (_, output) = read_to_end(File::open("/dev/null").unwrap(), child);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // After SIGTERM the capture is complete.
    let (mut fifo, child) = folder.capture(follow, &[]);
    let mut got = read_some(&mut fifo, 100);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let (rest, output) = read_to_end(fifo, child);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    got.extend(rest);
    std::fs::write(folder.path("got.pcapng"), got).unwrap();
    assert!(folder.frames("got.pcapng") == folder.frames("web.pcap"));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = Folder::new();
    let rows: [(&str, &[&str], i32, &str); 4] = [
        ("pcap none.pcap", &[], 1, "none.pcap"),
        ("pcap web.pcap | hed 5", &[], 2, "hed"),
        (" ", &[], 2, "which request?"),
        ("pcap web.pcap", &["--extcap-capture-filter", "udp porrt"], 2, "syntax error"),
    ];
    for (request, more, status, expected) in rows {
        let (fifo, child) = folder.capture(request, more);
        let (got, output) = read_to_end(fifo, child);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{request}: {said}");
        assert!(said.contains(expected) && got.is_empty(), "{request}: {said}");
    }
    assert_eq!(folder.ask(&["--extcap-interface", "sl:lo"]).status.code(), Some(2));
    assert_eq!(folder.ask(&["--extcap-dlts"]).status.code(), Some(2));
}

#[test]
fn tshark_finds_it_and_captures() {
    let Some(tshark) = [Path::new("/usr/bin/tshark")].into_iter().find(|path| path.exists()) else {
        eprintln!("skipped: tshark is not installed");
        return;
    };
    let folder = Folder::new();
    // In a folder that any user may read, and alone, so that tshark takes no other file for an interface.
    let place = folder.path("extcap");
    std::fs::create_dir(&place).unwrap();
    std::fs::copy(PROGRAM, place.join("streamline-extcap")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(tshark);
        command.args(arguments).env("WIRESHARK_EXTCAP_DIR", &place).env("HOME", folder.path("home"));
        if rustix::process::getuid().is_root() {
            // tshark must not use root's environment.
            command.uid(65534).gid(65534);
        }
        let output = command.current_dir("/").output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (listed, said) = run(&["-D"]);
    assert!(listed.contains("sl:request (Streamline: a request)"), "{listed}{said}");
    let setting = format!("extcap.sl_request.request:pcap {} | head 4", folder.path("web.pcap").display());
    let (shown, said) = run(&["-n", "-i", "sl:request", "-o", &setting, "-T", "fields", "-e", "frame.len"]);
    assert_eq!(shown.lines().count(), 4, "{shown}{said}");
}
