//! Clients that may load programs into the kernel: their program can store into any map that they hold, frozen or not.

use crate::bed::{Bed, PROGRAM, frame, until};
use crate::hostile::{ANNA, BERT, as_user, send_packet};
use buffer::live::Areas;
use capture::CaptureErrorKind;
use capture::client::Client;
use capture::reader::Found;
use capture::{By, CaptureReader, CaptureRequest};
use kernel::code::{Code, Register, Width};
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

const POLICY: &str = "[[allow]]\nusers = [\"20001\", \"20002\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n";

/// Loads a program that stores into this map, and runs it. Returns whether it stored.
fn store(map: &OwnedFd) -> bool {
    let mut code = Code::default();
    code.set_map_value(Register::R1, map.as_fd(), 0);
    code.store_constant(Width::Eight, Register::R1, 0, 0x6666_6666);
    code.set(Register::R0, 0);
    code.exit();
    let program = kernel::sys::load_socket_filter("forges", &code.finish().expect("it is short"));
    program.is_ok_and(|program| kernel::sys::test_run(program.as_fd(), &[0; 64], 1).is_ok())
}

/// All areas of a ring into which such a program can store.
fn stored(Areas { words, slots, data }: &Areas<OwnedFd>) -> Vec<&'static str> {
    let areas = [("words", words), ("slots", slots), ("data", data)];
    areas.into_iter().filter(|(_, area)| store(area)).map(|(name, _)| name).collect()
}

/// Does `work` as this user, with CAP_BPF.
fn as_loader<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Changes only this thread, which ends with the work.
            let (uid, gid, bpf) = (Uid::from_raw(user), Gid::from_raw(user), CapabilitySet::BPF);
            rustix::thread::set_keep_capabilities(true).expect("every thread may");
            rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root may");
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
            let sets = CapabilitySets { effective: bpf, permitted: bpf, inheritable: CapabilitySet::empty() };
            rustix::thread::set_capabilities(None, sets).expect("it is kept");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read(reader: &mut CaptureReader) -> Vec<u8> {
    let mut bytes = vec![0; 300];
    let mut len = None;
    until("the packet is there", || {
        if let Found::Packet(packet) = reader.look() {
            len = reader.take_copy(&packet, &mut bytes);
        }
        len.is_some()
    });
    bytes.truncate(len.unwrap_or(0));
    bytes
}

#[test]
fn whoever_may_load_programs_finds_no_map_to_store_into() {
    let Some(bed) = Bed::new(Some(POLICY)) else { return };
    let connect = || Client::connect(&bed.socket(), "a test").expect("everybody may connect");
    let bert = as_user(BERT, connect);
    let attachment = bert.open(&bed.capture_request()).expect("he may");
    assert!(
        !bert.device("near").expect("he may").copied && !attachment.granted.device.copied,
        "{}",
        attachment.granted.device.how
    );
    // Shows that his maps can be written; otherwise this test would prove nothing.
    let data = attachment.fds.areas.data.try_clone().expect("there is room");
    let mut reader = CaptureReader::new(attachment, None, None).expect("it can be mapped");
    send_packet(&bed, 0);
    until("it is written", || reader.memory().next() == 1);
    assert!(as_loader(ANNA, || store(&data)), "CAP_BPF is enough to store into a frozen map");
    assert_ne!(read(&mut reader), frame(0), "what was stored is what he reads");
    // She cannot store into the maps that she got herself.
    let (anna, mine) = as_loader(ANNA, || {
        let anna = connect();
        let refused =
            anna.open(&CaptureRequest { by: By::Kernel, ..bed.capture_request() }).expect_err("it would be a map");
        assert!(refused.kind == CaptureErrorKind::Denied && refused.text.contains("CAP_BPF"), "{refused}");
        let device = anna.device("near").expect("she may");
        assert!(device.copied && device.how.contains("CAP_BPF"), "{}", device.how);
        let mine = anna.open(&bed.capture_request()).expect("she may");
        assert_eq!(stored(&mine.fds.areas), [""; 0], "{}", mine.granted.device.how);
        assert!(mine.granted.device.copied && mine.granted.note.contains("CAP_BPF"), "{}", mine.granted.note);
        (anna, mine)
    });
    let mut her_reader = CaptureReader::new(mine, None, None).expect("it can be mapped");
    send_packet(&bed, 1);
    assert_eq!((read(&mut reader), read(&mut her_reader)), (frame(1), frame(1)));
    // A connection has the rights of the moment when it was made, both more and fewer.
    let again = anna.open(&bed.capture_request()).expect("she may");
    assert!(!again.granted.device.copied, "she has lost the capability: {}", again.granted.device.how);
    let rings = bed.client().state().expect("it answers").rings;
    let mut readers: Vec<_> = rings.iter().map(|ring| (ring.device.copied, ring.readers.len())).collect();
    readers.sort_unstable();
    assert_eq!(readers, [(false, 2), (true, 1)], "{rings:?}");
}

#[test]
fn where_everybody_may_load_programs_only_root_gets_maps() {
    let Some(mut bed) = Bed::new(Some(&format!("{POLICY}keep = \"256K\"\n"))) else { return };
    bed.daemon.signal(Signal::KILL);
    until("it is gone", || bed.daemon.has_ended());
    let setting = bed.path("everybody");
    std::fs::write(&setting, "0\n").expect("there is room");
    let mut command = Command::new("unshare");
    let mount = "mount --bind \"$0\" /proc/sys/kernel/unprivileged_bpf_disabled && exec \"$@\"";
    command.args(["--mount", "sh", "-c", mount]).arg(&setting);
    bed.restart_by(command);
    let root = bed.client();
    until("packets are kept", || root.state().is_ok_and(|state| state.rings.iter().any(|ring| ring.kept)));
    let bert = as_user(BERT, || Client::connect(&bed.socket(), "Bert")).expect("everybody may connect");
    let device = bert.device("near").expect("he may");
    assert!(device.copied && device.how.contains("unprivileged_bpf_disabled"), "{}", device.how);
    let his = bert.open(&bed.capture_request()).expect("he may");
    let roots = root.open(&bed.capture_request()).expect("root may");
    for attachment in [&his, &roots] {
        assert_eq!(stored(&attachment.fds.areas), [""; 0], "{}", attachment.granted.device.how);
    }
    let rings = root.state().expect("it answers").rings;
    assert!(matches!(&rings[..], [ring] if ring.kept && ring.readers.len() == 2), "it is the kept ring: {rings:?}");
    drop((his, roots));
}

/// The daemon knows this process only by its connection.
#[test]
fn a_process_with_the_capability_is_told_that_its_packets_are_copied() {
    let Some(bed) = Bed::new(Some(POLICY)) else { return };
    let explain = |capabilities: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "20001", "--regid", "20001", "--clear-groups"]).args(capabilities).arg(PROGRAM);
        command.args(["explain", "--daemon"]).arg(bed.socket()).arg("ethernet near | count");
        command.output()
    };
    let Ok(without) = explain(&[]) else { return eprintln!("skipped: setpriv(1) is not installed") };
    let with = explain(&["--inh-caps", "+bpf"]).expect("it is installed");
    let [without, with] = [without, with].map(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    });
    assert!(!without.contains("CAP_BPF") && without.contains("kernel"), "{without}");
    assert!(with.contains("CAP_BPF") && with.contains("daemon"), "{with}");
}
