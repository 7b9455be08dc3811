//! `streamline net`: a confined daemon owns interfaces, and its policy permits flows. Devices are in namespaces of the tests.

use crate::net::*;
use capture::client::Client;
use capture::{CaptureError, CaptureErrorKind};
use driver::Receive;
use driver::af_packet::{self, Direction};
use flow::{Answer, Flow, OpenFlow, Question};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::network::may_make_networks;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PREFIX: &str = "10.0.0.2/24";

fn net_as(net: &Net, user: u32, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("net").args(arguments).arg("--daemon").arg(net.socket());
    command.uid(user).gid(user).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `streamline net` as root, which must succeed. Returns its standard output.
fn done(net: &Net, arguments: &[&str]) -> String {
    let output = net_as(net, 0, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `net up` and returns its standard output. `None`: this machine lets the daemon lock no memory, which AF_XDP needs.
fn brought_up(net: &Net, arguments: &[&str]) -> Option<String> {
    let output = net_as(net, 0, arguments);
    if !output.status.success() && said(&output).contains("cannot lock") {
        eprintln!("skipped (limits): {}", said(&output));
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Runs `streamline net` as this user, which must fail. Returns its message.
fn refused(net: &Net, user: u32, arguments: &[&str]) -> String {
    let output = net_as(net, user, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn listed(net: &Net, user: u32, what: &str, key: &str) -> Vec<Value> {
    let output = net_as(net, user, &[what, "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document[key].as_array().unwrap().clone()
}

/// A question of the far side by ARP for the owner of an address (RFC 826).
fn arp_request(address: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..32].copy_from_slice(&[2, 0, 0, 0, 0, 9, 10, 0, 0, 1]);
    frame[38..42].copy_from_slice(&address.octets());
    frame
}

fn resolved(net: &Net) -> String {
    let options = af_packet::Options {
        direction: Direction::In,
        block_timeout: Duration::from_millis(1),
        ..af_packet::Options::default()
    };
    let mut receiver = af_packet::Receiver::open(&net.pair.far.namespace, "far", &options).unwrap();
    let mut sender = net.pair.far.sender();
    let mut found = None;
    until("the interface answers for its address", || {
        sender.send(&arp_request(ADDRESS)).unwrap();
        let take = &mut |batch: driver::Batch<'_>| {
            for frame in batch.frames.iter().map(|frame| frame.parts().concat()) {
                let is_answer = frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
                if is_answer && frame[28..32] == ADDRESS.octets() {
                    let mac: Vec<String> = frame[22..28].iter().map(|byte| format!("{byte:02x}")).collect();
                    found = Some(mac.join(":"));
                }
            }
        };
        receiver.receive(Duration::from_millis(50), take).unwrap();
        found.is_some()
    });
    found.expect("it was awaited")
}

#[test]
fn interfaces_come_and_go_and_answer_in_a_confined_daemon() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    for way in [None, Some("af_packet"), Some("af_xdp")] {
        let via = way.map_or(vec![], |way| vec!["--via", way]);
        let up = [&["up", "near", "--addr", PREFIX, "--rate", "2.5G"][..], &via].concat();
        let Some(shown) = brought_up(&net, &up) else { continue };
        assert!(shown.contains("2.5 Gbit/s"), "{way:?}: {shown}");
        let interfaces = listed(&net, 0, "ls", "interfaces");
        let [interface] = &interfaces[..] else { panic!("{way:?}: {interfaces:?}") };
        for (key, expected) in [
            ("interface", json!("near")),
            ("addresses", json!([PREFIX])),
            ("mtu", json!(1500)),
            ("rate_bits", json!(2_500_000_000u64)),
            ("flows", json!(0)),
        ] {
            assert_eq!(interface[key], expected, "{way:?}: {interface}");
        }
        assert_eq!(interface["mac"], resolved(&net), "{way:?}");
        assert!(!listed(&net, 0, "routes", "routes").is_empty(), "{way:?}");
        assert!(refused(&net, 0, &up).contains("near"), "{way:?}: twice");
        assert!(done(&net, &["down", "near", "--json"]).contains("\"near\""), "{way:?}");
        assert!(done(&net, &["ls"]).starts_with("no interface is up"), "{way:?}");
        assert!(refused(&net, 0, &["down", "near"]).contains("near"), "{way:?}: not up");
    }
    assert!(refused(&net, 0, &["up", "nosuch0", "--addr", PREFIX]).contains("nosuch0"));
}

#[test]
fn a_tap_can_be_an_interface_of_a_confined_daemon() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    // The daemon runs as a user without rights.
    match std::fs::metadata("/dev/net/tun").map(|door| door.mode() & 0o006) {
        Err(_) => return eprintln!("skipped: this kernel makes no taps"),
        Ok(6) => {}
        Ok(_) => {
            let said = refused(&net, 0, &["up", "made0", "--addr", PREFIX, "--via", "tuntap"]);
            assert!(said.contains("chmod 666 /dev/net/tun"), "{said}");
            return eprintln!("skipped (rights): only root opens /dev/net/tun");
        }
    }
    done(&net, &["up", "made0", "--addr", PREFIX, "--via", "tuntap"]);
    assert_eq!(listed(&net, 0, "ls", "interfaces")[0]["interface"], "made0");
    done(&net, &["down", "made0"]);
    assert!(listed(&net, 0, "ls", "interfaces").is_empty());
}

#[test]
fn a_daemon_that_ends_gives_devices_back() {
    if !may_make_networks() {
        return;
    }
    let mut net = Net::new(None);
    if brought_up(&net, &["up", "near", "--addr", PREFIX, "--via", "af_xdp"]).is_none() {
        return;
    }
    assert!(net.pair.near.link().xdp.is_some(), "its program is there");
    let output = net.daemon.take().expect("it runs").interrupt();
    assert!(output.status.success() && !said(&output).contains("near"), "{}", said(&output));
    // The interface's process waits some seconds for another daemon.
    assert!(net.pair.near.link().xdp.is_some(), "its program is still there");
    until("nothing is left of it", || net.pair.near.link().xdp.is_none());
}

/// A flow of a user, and the connection to which it belongs.
fn flow_of(net: &Net, user: u32, device: Option<&str>) -> Result<(Client, Flow), CaptureError> {
    let (socket, device) = (net.socket(), device.map(String::from));
    // The kernel tells the daemon the user of the thread that connects.
    let connecting = std::thread::spawn(move || {
        let user = rustix::process::Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        Client::connect(&socket, "a test").unwrap()
    });
    let client = connecting.join().unwrap();
    let open = OpenFlow::new(device, 17, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), None);
    let (answer, fds) = client.flows(Question::Open(open.clone()))?;
    let Answer::Granted(granted) = answer else { panic!("{answer:?}") };
    Ok((client, flow::Host::default().adopt(granted, open.geometry(), fds).unwrap()))
}

/// This user may only have flows on another device.
const OTHER: u32 = 1234;

#[test]
fn flows_are_for_whom_the_policy_names_and_go_with_their_client() {
    if !may_make_networks() {
        return;
    }
    let policy = format!(
        "[[allow]]\nusers = [\"{NOBODY}\"]\ndevices = [\"near\"]\nmodes = [\"flow\"]\n\
         [[allow]]\nusers = [\"{OTHER}\"]\ndevices = [\"other\"]\nmodes = [\"flow\"]\n"
    );
    let net = Net::new(Some(&policy));
    assert!(refused(&net, NOBODY, &["up", "near", "--addr", PREFIX]).contains("only root"));
    let error = flow_of(&net, NOBODY, Some("near")).map(drop).expect_err("it is not up");
    assert_eq!(error.kind, CaptureErrorKind::Absent, "{error:?}");
    done(&net, &["up", "near", "--addr", PREFIX]);
    assert!(refused(&net, NOBODY, &["down", "near"]).contains("only root"));
    assert_eq!(listed(&net, NOBODY, "ls", "interfaces").len(), 1, "everybody sees interfaces");

    let (client, flow) = flow_of(&net, NOBODY, Some("near")).unwrap();
    let granted = &flow.granted;
    assert_eq!((granted.device.as_str(), granted.prefix), ("near", 24));
    for user in [0, NOBODY] {
        let flows = listed(&net, user, "flows", "flows");
        let [flow] = &flows[..] else { panic!("{flows:?}") };
        assert_eq!((&flow["flow"], &flow["user"]), (&json!(granted.flow), &json!(NOBODY)));
        assert_eq!((&flow["process"], &flow["protocol"]), (&json!(std::process::id()), &json!(17)));
    }
    assert!(listed(&net, OTHER, "flows", "flows").is_empty(), "others see no flows but their own");

    for (user, device, told) in [
        (4321, Some("near"), "user 4321 may use no device here"),
        (OTHER, Some("near"), "does not let user 1234 open flows on `near`"),
        (OTHER, None, "the flow named no device"),
    ] {
        let error = flow_of(&net, user, device).map(drop).expect_err(told);
        assert!(error.kind == CaptureErrorKind::Denied && error.text.contains(told), "{error:?}");
    }
    let (second, other) = flow_of(&net, NOBODY, None).unwrap();
    let other = &other.granted;
    assert!(other.device == "near" && other.flow != granted.flow);
    assert_eq!(listed(&net, 0, "flows", "flows").len(), 2, "what was refused is not there");
    second.flows(Question::Close(other.channel)).unwrap();
    assert_eq!(listed(&net, 0, "flows", "flows").len(), 1);
    second.flows(Question::Close(other.channel)).expect_err("it is closed");
    drop(client);
    until("the flow goes with its client", || listed(&net, 0, "flows", "flows").is_empty());
}
