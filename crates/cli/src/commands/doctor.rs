//! `streamline doctor`: lists the needs of live capture, which of them are met here, and the cost of each unmet one.

use crate::exit::Outcome;
use crate::place::DaemonArg;
use capture::client::Client;
use daemon::{confine, maps};
use driver::namespace::Namespace;
use kernel::capture_program::{CaptureProgram, Way};
use serde_json::json;
use std::io::ErrorKind;

/// Say what live capture needs and what of it is here
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArg,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// One checked need.
struct Finding {
    what: &'static str,
    good: bool,
    found: String,
    /// The cost if the need is not met.
    cost: &'static str,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let findings = look(args);
    if args.json {
        let all: Vec<_> = findings
            .iter()
            .map(|finding| {
                let Finding { what, good, found, cost } = finding;
                json!({ "what": what, "good": good, "found": found, "cost": if *good { "" } else { cost } })
            })
            .collect();
        return crate::print_json(&json!(all));
    }
    let mut text = String::new();
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    for finding in &findings {
        let mark = if finding.good { "ok" } else { "--" };
        text.push_str(&format!("{mark}  {:width$}  {}\n", finding.what, finding.found));
        if !finding.good {
            text.push_str(&format!("    {:width$}  {}\n", "", finding.cost));
        }
    }
    crate::print_text(&text)
}

fn look(args: &Args) -> Vec<Finding> {
    let mut findings = vec![daemon(args)];
    for (name, there) in confine::capabilities() {
        let cost = match name {
            "CAP_NET_RAW" => {
                "this process can open no packet sockets and make no device promiscuous; a daemon that can is enough"
            }
            "CAP_NET_ADMIN" => "this process can attach no programs to devices: it captures by copying",
            "CAP_NET_BIND_SERVICE" => "a daemon started so gives flows on shared devices no ports below 1024",
            "CAP_BPF" => "this process can load no programs: it captures by copying",
            _ => "programs of others on a device are known by number, not by name",
        };
        findings.push(Finding { what: name, good: there, found: if there { "held" } else { "not held" }.into(), cost });
    }
    for (what, guards) in [("daemon's guard", confine::supported()), ("keepers' guard", super::pipe::keeper_guards())] {
        findings.extend(guards.map(|guard| {
            let cost = "such a process runs here without this guard; it can be used all the same";
            let found = guard.held.as_ref().map_or_else(String::clone, |()| guard.name.into());
            Finding { what, good: guard.held.is_ok(), found, cost }
        }));
    }
    findings.push(program());
    findings.push(maps());
    findings.push(jit());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    findings.push(Finding {
        what: "locked memory",
        good: limit.is_none_or(|bytes| bytes >= 64 << 20),
        found: limit.map_or("no limit".into(), |bytes| format!("at most {} MiB", bytes >> 20)),
        cost: "AF_XDP sockets with more memory than that are refused (LimitMEMLOCK=infinity in a unit)",
    });
    let compiler = libpcap();
    findings.push(compiler);
    findings.push(devices());
    findings
}

fn daemon(args: &Args) -> Finding {
    let connected = Client::connect(&args.daemon.path(), "streamline doctor");
    let found = match &connected {
        Ok(client) => {
            let confined = client.state().map(|state| format!(", confined to: {}", state.confined));
            format!("listens at {}{}", args.daemon.path().display(), confined.unwrap_or_default())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("this user may not connect to {}: {error}", args.daemon.path().display())
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            format!("none at {}, but the socket of one that has died: {error}", args.daemon.path().display())
        }
        Err(error) => format!("none at {}: {error}", args.daemon.path().display()),
    };
    let cost = match &connected {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            "a daemon without a policy lets in root and the group `streamline` (`usermod -aG streamline USER`)"
        }
        _ => "each process captures by itself, and needs the rights to (`streamline daemon`, as root, starts one)",
    };
    Finding { what: "daemon", good: connected.is_ok(), found, cost }
}

fn program() -> Finding {
    let tried = CaptureProgram::new(1, true).and_then(|mut capture| capture.prepare(Way::In));
    Finding {
        what: "kernel's program",
        good: tried.is_ok(),
        found: tried.map_or_else(|error| error.to_string(), |()| "the kernel takes it".into()),
        cost: "packets are copied from a packet socket by a thread: about twice the processor time",
    }
}

/// Which rings a daemon gives to users other than root.
fn maps() -> Finding {
    let why = match maps::threads_load(std::process::id() as i32) {
        _ if maps::everybody_loads() => Some(maps::EVERYBODY),
        Ok(false) => None,
        Ok(true) | Err(_) => Some(maps::THIS_PROCESS),
    };
    Finding {
        what: "maps for users",
        good: why.is_none(),
        found: why.unwrap_or("users who are not root cannot write the kernel's rings").into(),
        cost: "a daemon copies packets for such a user from a packet socket (as by=socket): about twice the processor \
               time; `sysctl kernel.unprivileged_bpf_disabled=2`, or a process without the capability, changes that",
    }
}

fn jit() -> Finding {
    let value = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").unwrap_or_default();
    Finding {
        what: "JIT for programs",
        good: matches!(value.trim(), "1" | "2") || !std::path::Path::new("/proc/sys/net/core/bpf_jit_enable").exists(),
        found: if value.trim() == "0" { "off".into() } else { "on".into() },
        cost: "expressions in the kernel are interpreted: several times the processor time",
    }
}

fn libpcap() -> Finding {
    let version = streamline::describe_compiler();
    Finding {
        what: "libpcap",
        good: version.contains("version"),
        found: version,
        cost: "`bpf` cannot be used (Debian: libpcap0.8)",
    }
}

fn devices() -> Finding {
    let listed = Namespace::current().map_err(|error| error.to_string());
    let listed = listed.and_then(|namespace| driver::device::list(&namespace).map_err(|error| error.to_string()));
    let up = listed.as_ref().map_or(0, |devices| devices.iter().filter(|device| device.link.is_running()).count());
    let found = match &listed {
        Ok(devices) => format!("{} of {} are up (`streamline devices`)", up, devices.len()),
        Err(error) => error.clone(),
    };
    Finding { what: "devices", good: up > 0, found, cost: "there is nothing to capture from" }
}
