//! Interfaces that have their addresses from a DHCP server: `dnsmasq`, on the kernel's side.

use crate::changing::{connected, while_bytes_go};
use crate::flows::command;
use crate::net::*;
use crate::restarts::kill_interface_process;
use crate::unmodified::with_program;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Serves five addresses to the pair's near side, for two minutes each. Returns the file of leases.
fn served(net: &Net) -> (Running, PathBuf) {
    let leases = net.path("leases");
    let mut server = Command::new("dnsmasq");
    server.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping", "--user=root"]);
    server.args([
        "--dhcp-authoritative",
        "--dhcp-range=10.0.0.100,10.0.0.104,255.255.255.0,2m",
        "--dhcp-option=26,1400",
    ]);
    server.arg(format!("--interface={}", net.pair.far.name)).arg(format!("--dhcp-leasefile={}", leases.display()));
    server.arg(format!("--pid-file={}", net.path("dnsmasq.pid").display()));
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = net.pair.far.namespace.enter(|| server.spawn()).unwrap().unwrap();
    (Running(Some(child)), leases)
}

fn interface(net: &Net) -> Value {
    let output = command(net, 0, &["ls", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["interfaces"][0].clone()
}

#[test]
fn an_address_is_leased_outlives_the_process_and_is_given_back() {
    let Some(net) = with_program(&["dnsmasq"]) else { return };
    let device = net.device().to_string();
    let down = command(&net, 0, &["down", &device]).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    let (_server, leases) = served(&net);
    let up = command(&net, 0, &["up", &device, "--dhcp", "--via", "af_packet"]).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let said = String::from_utf8(up.stdout).unwrap();
    assert!(said.contains("bound") && said.contains("10.0.0.10") && said.contains("10.0.0.1 "), "{said}");
    let before = interface(&net);
    assert_eq!((&before["dhcp"]["server"], &before["dhcp"]["router"]), (&"10.0.0.1".into(), &"10.0.0.1".into()));
    assert_eq!(before["mtu"], 1400);
    let address = before["dhcp"]["address"].as_str().unwrap().to_string();
    assert_eq!(before["addresses"][0], address.as_str());
    let given = || std::fs::read_to_string(&leases).unwrap_or_default();
    until("the server notes the lease", || given().contains(address.trim_end_matches("/24")));

    let (near, far, _) = connected(&net, "10.0.0.1");
    assert_eq!(format!("{}/24", near.local_addr().unwrap().ip()), address);
    while_bytes_go(&near, &far, |more| {
        kill_interface_process(&net);
        more();
    });
    until("the next process has the lease", || interface(&net)["dhcp"]["state"] == "bound");
    let after = interface(&net);
    assert_eq!((&after["addresses"], &after["dhcp"]["address"]), (&before["addresses"], &before["dhcp"]["address"]));

    drop((near, far));
    assert!(command(&net, 0, &["down", &device]).status().unwrap().success());
    until("the server has the address again", || given().is_empty());
}

#[test]
fn without_a_server_the_command_says_so_and_what_has_no_server_is_refused() {
    let Some(net) = with_program(&["ip"]) else { return };
    let device = net.device().to_string();
    assert!(command(&net, 0, &["down", &device]).status().unwrap().success());
    for options in [&["up", "t0", "--dhcp", "--via", "loopback"][..], &["up", &device, "--dhcp", "--share"]] {
        let output = command(&net, 0, options).output().unwrap();
        assert!(!output.status.success(), "{options:?}");
    }
    let up = command(&net, 0, &["up", &device, "--dhcp", "--via", "af_packet", "--wait", "0.2"]).output().unwrap();
    let said = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success() && said.contains("no DHCP server gave an address yet"), "{said}");
    assert_eq!(interface(&net)["dhcp"]["state"], "asks for servers");
    let listed = command(&net, 0, &["ls"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("asks for servers"));
}
