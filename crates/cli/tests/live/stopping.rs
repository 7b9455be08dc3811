//! `ps`, `top` and `stop` use one number for a request, and another for other clients of the daemon.

use crate::net::*;
use capture::client::Client;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use testkit::network::may_make_networks;

fn streamline(net: &Net, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).arg("--daemon").arg(net.socket()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.first() == Some(&first)).unwrap_or_else(|| panic!("no row {first} in:\n{table}"))
}

#[test]
fn a_request_through_a_daemon_is_ended_cleanly_by_the_number_that_is_shown() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let reader = net.read(&["ethernet D | bpf \"udp\" | save got.pcap"]).pop().unwrap();
    let number = reader.0.as_ref().unwrap().id().to_string();
    until("it can be asked", || text(&streamline(&net, &["ps"]).stdout).contains("| save got.pcap"));
    let listed = text(&streamline(&net, &["ps"]).stdout);
    let shown = row(&listed, &number);
    assert_eq!((shown[1], shown.contains(&net.device())), ("root", true), "{listed}");
    // The request is not listed as a client, too. `ps` itself is not listed either: there is no such table.
    assert!(!listed.lines().any(|line| line.trim_start().starts_with("client ")), "{listed}");
    assert_eq!(listed.matches("confined to").count(), 1, "{listed}");
    let seen = text(&streamline(&net, &["top", "--interval", "0.1", "--count", "1"]).stdout);
    assert_eq!(row(&seen, &number)[1], "root", "{seen}");
    let frames: Vec<Vec<u8>> = (0..100).map(|number| datagram(number, 53, 100)).collect();
    send(&net, &frames);
    let counted = text(&streamline(&net, &["stats"]).stdout);
    assert!(counted.contains(&format!("  {number}, reader ")), "{counted}");
    let stopped = streamline(&net, &["stop", &number]);
    assert_eq!((stopped.status.code(), text(&stopped.stderr)), (Some(0), String::new()));
    let report = succeeded(&reader.end());
    assert_eq!(report["end"], "stopped");
    let got: Vec<Vec<u8>> = packets(&net.path("got.pcap")).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(got == frames, "{} of {}", got.len(), frames.len());
}

#[test]
fn what_is_no_request_is_cut_off_by_its_number_as_a_client() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let client = Client::connect(&net.socket(), "tcpdump -i near").unwrap();
    let this = std::process::id().to_string();
    let listed = text(&streamline(&net, &["ps"]).stdout);
    let state = net.state();
    let clients = state["clients"].as_array().unwrap();
    let number = clients.iter().find(|client| client["purpose"] == "tcpdump -i near").unwrap()["id"].to_string();
    let shown = row(&listed, &number);
    assert_eq!((shown[1], shown[2]), ("root", &*this), "{listed}");
    // By the number of its process, and by the client's number as if it were a request.
    for asked in [&this, &number] {
        let refused = streamline(&net, &["stop", asked]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let help = format!("`streamline stop --client {number}` cuts off this client of the daemon (tcpdump -i near)");
        assert!(said.contains(&help), "{said}");
    }
    assert!(client.state().is_ok(), "it was not cut off by that");
    assert!(streamline(&net, &["stop", "--client", &number]).status.success());
    assert!(client.state().is_err());
    assert_eq!(streamline(&net, &["stop", "--client", &number]).status.code(), Some(1));
}

#[test]
fn where_nothing_runs_there_are_no_empty_tables() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some("[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n"));
    // Root would see all users' requests, including those of other tests.
    let mut ps = Command::new(PROGRAM);
    ps.args(["ps", "--daemon"]).arg(net.socket()).uid(NOBODY).gid(NOBODY).env("XDG_RUNTIME_DIR", net.path("."));
    let output = ps.output().unwrap();
    let listed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        matches!(lines[..], ["no request runs, and the daemon has no reader", "", confined]
        if confined.starts_with("the daemon is confined to: ")),
        "{listed}"
    );
}
