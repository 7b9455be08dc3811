//! Text from others (names of files, requests, names in the traffic, devices, policies) cannot control a terminal: it
//! contains no escape sequence, no mark that changes the writing direction, and no line that looks like one of ours.

use base::terminal::is_unfit;
use packet::LinkType;
use packet::pcap_file::{Resolution, write_header, write_record_header};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::packets::{CLIENT, Conversation, SERVER, udp};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// Clears a terminal (7-bit and 8-bit), sets its title, changes the writing direction, hides text.
const ATTACK: &str =
    "\u{1b}[2J\u{9b}2J\u{1b}]0;owned\u{7}\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{feff}\u{e0041}\u{7f}";

/// A command in a folder, without access to other daemons and requests.
fn streamline(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", folder).current_dir(folder).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn check(output: &Output, seen: &str) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).expect("what is printed is UTF-8");
    let unfit: Vec<char> = text.chars().filter(|one| is_unfit(*one) && !matches!(one, '\n' | '\t')).collect();
    assert!(unfit.is_empty(), "{unfit:?} in {text:?}");
    assert!(text.contains(seen), "no {seen} in {text}");
    assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{text}");
    text
}

fn run(folder: &Path, arguments: &[&str], seen: &str) -> String {
    check(&streamline(folder, arguments).output().unwrap(), seen)
}

/// A capture of these frames, truncated at its end.
fn capture(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 262_144, Resolution::Nanoseconds);
    for (time, frame) in frames {
        write_record_header(&mut file, *time, frame.len() as u32, frame.len() as u32, Resolution::Nanoseconds);
        file.extend_from_slice(frame);
    }
    file.extend_from_slice(&[1; 7]);
    file
}

#[test]
fn names_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let forged = format!("{ATTACK}\nerror: forged");
    // Names found in a folder, also with bytes that are no UTF-8.
    std::fs::create_dir(folder.path().join("found")).unwrap();
    let not_utf8 = [forged.as_bytes(), b"\xff.pcap"].concat();
    std::fs::write(folder.path().join("found").join(OsStr::from_bytes(&not_utf8)), capture(&[])).unwrap();
    let said = run(folder.path(), &["run", "pcap found | count"], r"found/\x1b[2J\u{9b}2J\x1b]0;owned\x07\u{202e}");
    assert!(said.contains(r"\x7f\x0aerror: forged\xff.pcap: byte 24: the file ends inside a record"), "{said}");
    // Names in the request: missing, truncated, no capture, already written, a folder, an index.
    let here = |name: &str| folder.path().join(name);
    let name = |ending: &str| format!("{forged}{ending}");
    std::fs::write(here(&name("cut")), capture(&[])).unwrap();
    std::fs::write(here(&name("text")), format!("text {ATTACK}")).unwrap();
    std::fs::create_dir(here(&name("dir"))).unwrap();
    std::fs::write(here(&name("dir")).join("index.jsonl"), "").unwrap();
    std::os::unix::fs::symlink(name("text"), here(&name("link"))).unwrap();
    let escaped = r"\x1b[2J\u{9b}2J";
    for (request, seen) in [
        (format!("pcap \"{}\" | count", name("none")), "No such file"),
        (format!("pcap \"{}\" | count", name("cut")), "the file ends inside a record"),
        (format!("pcap \"{}\" | count", name("text")), "is not a capture"),
        (format!("pcap \"{}\" | save \"{}\"", name("cut"), name("text")), "exists"),
        (format!("pcap \"{}\" | save \"{}\"", name("cut"), name("dir")), "is a folder"),
        (format!("pcap \"{}\" | save \"{}\" overwrite=yes", name("cut"), name("link")), "is a symbolic link"),
        (format!("pcap \"{}\" | files dir=\"{}\"", name("cut"), name("text")), "is not a folder"),
        (format!("pcap \"{}\" | files dir=\"{}\"", name("cut"), name("dir")), "holds the index"),
        (format!("pcap \"{}\" | count | json file=\"{}/x\"", name("cut"), name("none")), "No such file"),
        (
            format!("pcap \"{}\" | count | json file=\"{}\" max-bytes=0 overwrite=yes", name("cut"), name("json")),
            "max-bytes is reached",
        ),
    ] {
        let said = run(folder.path(), &["run", &request], seen);
        assert!(said.contains(escaped), "{said}");
        run(folder.path(), &["run", "--stats", "json", &request], seen);
        for command in [&["check"][..], &["explain"], &["explain", "--json"]] {
            run(folder.path(), &[command, &[&request]].concat(), "");
        }
    }
    let file = name("request");
    std::fs::write(here(&file), format!("pcap x | {ATTACK}nix")).unwrap();
    run(folder.path(), &["run", "-f", &file], "request:1");
    run(folder.path(), &["run", "-f", &name("no-request")], "No such file");
}

#[test]
fn requests_and_words_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    for request in [
        format!("pcap x | {ATTACK}"),
        format!("pcap x | count {ATTACK}=1"),
        format!("pcap x | bpf \"{ATTACK}\" | count"),
        format!("pcap x | match regex=\"({ATTACK}\" | count"),
        format!("ethernet \"{ATTACK}\" | count"),
        format!("pcap x # {ATTACK}\n | nix"),
        ATTACK.to_string(),
    ] {
        run(folder.path(), &["run", &request], "error: ");
        run(folder.path(), &["check", &request], "");
        run(folder.path(), &["explain", &request], "");
    }
    run(folder.path(), &["pipe", "ls", ATTACK], "is no name for a ring");
    for arguments in [
        &["filters", ATTACK][..],
        &["pipe", "rm", ATTACK],
        &["pipe", "read", ATTACK],
        &["watch", ATTACK],
        &["watch", &format!("p1.{ATTACK}")],
        &["replace", ATTACK, "pcap x | count"],
        &["stats", ATTACK],
        &["stop", ATTACK],
    ] {
        run(folder.path(), arguments, "error");
    }
}

/// Names in the traffic: a host, a URL and a user agent of HTTP, a name of DNS, a server's name of TLS.
#[test]
fn names_in_the_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let mut web = Conversation::open(CLIENT, SERVER, 1000);
    let request = format!("GET /{ATTACK} HTTP/1.1\r\nHost: {ATTACK}\r\nUser-Agent: {ATTACK}\r\n\r\n");
    web.send(0, request.as_bytes());
    let mut hello = Conversation::open((CLIENT.0, 40_001), (SERVER.0, 443), 1000);
    hello.send(0, &client_hello(ATTACK.as_bytes()));
    let mut frames = web.frames;
    frames.extend(hello.frames);
    frames.push((1 << 40, udp(CLIENT, (SERVER.0, 53), &question(ATTACK.as_bytes()))));
    std::fs::write(folder.path().join("x.pcap"), capture(&frames)).unwrap();
    for (filter, seen) in [("http", "GET"), ("dns", "rrname"), ("tls", "owned")] {
        run(folder.path(), &["run", &format!("pcap x.pcap | {filter} | inspect")], seen);
        let said = run(folder.path(), &["run", "-q", &format!("pcap x.pcap | {filter} | json")], seen);
        let line: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert!(line["event_type"] == filter, "{line}");
        run(folder.path(), &["run", "-q", &format!("pcap x.pcap | {filter} | inspect hex=yes")], "");
    }
    run(folder.path(), &["run", "pcap x.pcap | inspect bytes=500"], "UDP");
    run(folder.path(), &["run", "pcap x.pcap | http | files dir=out"], "the file ends");
}

fn question(label: &[u8]) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, label.len() as u8];
    message.extend_from_slice(label);
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// A TLS hello with this server name (RFC 6066 section 3).
fn client_hello(name: &[u8]) -> Vec<u8> {
    let with_length = |bytes: Vec<u8>, width: usize| {
        let length = (bytes.len() as u32).to_be_bytes();
        [&length[4 - width..], &bytes].concat()
    };
    let names = with_length([&[0][..], &with_length(name.to_vec(), 2)].concat(), 2);
    let extensions = [&[0, 0][..], &with_length(names, 2)].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &with_length(Vec::new(), 1),
        &with_length(vec![0x13, 1], 2),
        &with_length(vec![0], 1),
        &with_length(extensions, 2),
    ];
    let handshake = [&[1][..], &with_length(body.concat(), 3)].concat();
    [&[22, 3, 1][..], &with_length(handshake, 2)].concat()
}

/// A running request of another process.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn requests_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("pcap - | tcp | match \"{ATTACK}\" | count # {ATTACK}\n# error: forged");
    let mut command = streamline(folder.path(), &["run", &text]);
    let child = Waiting(command.stdin(Stdio::piped()).spawn().unwrap());
    let id = child.0.id().to_string();
    let began = Instant::now();
    let ps = || streamline(folder.path(), &["ps", "--daemon", "/nowhere"]).output().unwrap();
    while !String::from_utf8_lossy(&ps().stdout).contains(&id) {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not listed");
    }
    check(&ps(), "| count # ");
    run(folder.path(), &["ps", "--daemon", "/nowhere", "--json"], "| count # ");
    run(folder.path(), &["watch", &id], "match");
    run(folder.path(), &["watch", &format!("{id}.{ATTACK}")], "has no edge");
    run(folder.path(), &["replace", &id, &format!("pcap - | {ATTACK}")], "error");
}

#[test]
fn policies_and_devices() {
    let folder = tempfile::tempdir().unwrap();
    for policy in [format!("nix = \"{ATTACK}\"\n"), format!("[[allow]]\nusers = [\"{ATTACK}\"]\n"), ATTACK.to_string()]
    {
        std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
        let arguments = ["daemon", "--config", "policy.toml", "--socket", "control"];
        run(folder.path(), &arguments, "error: policy.toml: ");
    }
    // A device's name may have any byte except blank, `/` and `:`.
    let script = "ip link add name \"$(printf '\\033[2J\\302\\2335n')\" type veth peer name other || exit 42; \
                  \"$PROGRAM\" devices; \"$PROGRAM\" devices --json; \"$PROGRAM\" stats --all; \"$PROGRAM\" stats --json; \
                  \"$PROGRAM\" doctor; exit 0";
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .env("PROGRAM", PROGRAM)
        .env("XDG_RUNTIME_DIR", folder.path())
        .output();
    match output {
        Ok(output) if output.status.success() => drop(check(&output, "[2J")),
        _ => eprintln!("skipped (rights): no device can be made here (that takes root, unshare and ip)"),
    }
}

/// On a terminal `fmt` replaces escape sequences, which programs get unchanged.
#[test]
fn a_request_that_is_formatted() {
    let folder = tempfile::tempdir().unwrap();
    let request = format!("pcap x | match \"{ATTACK}\" | count");
    std::fs::write(folder.path().join("r.srl"), &request).unwrap();
    let output = streamline(folder.path(), &["fmt", "-f", "r.srl"]).output().unwrap();
    assert!(output.stdout.starts_with(request.as_bytes()), "a program gets it as it is");
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{PROGRAM} fmt -f r.srl"), "/dev/null"]).current_dir(folder.path());
    match script.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
            assert!(!text.chars().any(|one| is_unfit(one) && one != '\n'), "{text:?}");
            assert!(text.contains(r"\x1b[2J"), "{text}");
        }
        Err(error) => eprintln!("skipped: no script(1): {error}"),
    }
}
