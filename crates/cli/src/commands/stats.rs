//! `streamline stats`: shows all counters along a packet's way, so that a loss can be located.
//!
//! In the order of the way: the device and its driver, the processors' backlogs, the daemon's rings, their readers.

use crate::daemon_client;
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use crate::table::Table;
use capture::protocol::{ClientState, DaemonState};
use capture::registry::{ReaderState, RingState};
use driver::counters::{Counter, Meaning, SoftnetCounters};
use driver::device::Device;
use serde_json::json;

/// Show the counters along a packet's way: devices, the kernel's backlogs, the daemon's rings and their readers
///
/// Devices are those of this process's network namespace, rings those of the daemon, if one listens. The counters began
/// when the device, the system or the ring was made. If a ring is copied from a packet socket, its number of seen
/// packets includes those that the socket's filter kept out (`socket.kept_out`), where that is counted. With
/// `socket.filter_instructions`, it is the number that the filter let in.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,

    #[command(flatten)]
    daemon: DaemonArg,

    /// Also counters that are 0
    #[arg(long)]
    all: bool,

    /// One JSON document
    #[arg(long, conflicts_with = "all")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut devices = super::devices::list()?;
    // Without a daemon, or without access to it, there are still devices.
    let DaemonState { mut rings, clients, .. } =
        daemon_client::state(&args.daemon.path(), "streamline stats")?.unwrap_or_default();
    let is_wanted = |name: &str| args.devices.is_empty() || args.devices.iter().any(|wanted| wanted == name);
    let is_known = |name: &String| {
        devices.iter().any(|device| device.link.name == *name) || rings.iter().any(|ring| ring.device.name == *name)
    };
    if let Some(unknown) = args.devices.iter().find(|name| !is_known(name)) {
        return Err(CommandError::Failed(format!("there is no device `{unknown}` here, and no ring of one"))
            .with_help("`streamline devices` lists them"));
    }
    devices.retain(|device| is_wanted(&device.link.name));
    rings.retain(|ring| is_wanted(&ring.device.name));
    let softnet = SoftnetCounters::read().unwrap_or_default();
    match args.json {
        true => crate::print_json(&as_json(&devices, &softnet, &rings)),
        false => crate::print_text(&table(args.all, &devices, &softnet, &rings, &clients).text()),
    }
}

fn means(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Traffic => "",
        Meaning::PerhapsLost => "lost, or wanted by no protocol of the host",
        Meaning::Lost => "lost",
    }
}

/// A reader as `streamline ps` shows it: by its process.
fn reader(id: u64, clients: &[ClientState]) -> String {
    let client = clients.iter().find(|client| client.readers.iter().any(|(reader, _)| *reader == id));
    client.map_or_else(|| format!("  reader {id}"), |client| format!("  {}, reader {id}", client.process))
}

fn table(
    all: bool,
    devices: &[Device],
    softnet: &SoftnetCounters,
    rings: &[RingState],
    clients: &[ClientState],
) -> Table {
    let mut table = Table::new(&["where", "counter", ">count", ""]);
    let mut add = |place: &str, name: &str, value: u64, meaning: &str| {
        if all || value > 0 {
            table.row([place.into(), name.into(), value.to_string(), meaning.into()]);
        }
    };
    let told = |counter: &Counter| if counter.value > 0 { means(counter.meaning) } else { "" };
    for device in devices {
        for counter in device.link.counters.all() {
            add(&device.link.name, counter.name, counter.value, told(&counter));
        }
    }
    for counter in softnet.all() {
        add("processors", counter.name, counter.value, told(&counter));
    }
    for ring in rings {
        let place = format!("ring of {}", ring.device.name);
        add(&place, "ring.seen", ring.seen.0, "");
        add(&place, "ring.seen_bytes", ring.seen.1, "");
        add(&place, "ring.written", ring.written, "");
        for (name, value) in &ring.statistics {
            add(&place, name, *value, "");
        }
        for ReaderState { id, matched, lost, .. } in &ring.readers {
            let place = reader(*id, clients);
            add(&place, "reader.matched", *matched, "");
            add(&place, "reader.lost", *lost, if *lost > 0 { means(Meaning::Lost) } else { "" });
        }
    }
    table
}

fn as_json(devices: &[Device], softnet: &SoftnetCounters, rings: &[RingState]) -> serde_json::Value {
    let counters = |counters: &mut dyn Iterator<Item = Counter>| -> serde_json::Map<_, _> {
        counters.map(|counter| (counter.name.to_string(), json!(counter.value))).collect()
    };
    let devices: serde_json::Map<_, _> = devices
        .iter()
        .map(|device| (device.link.name.clone(), json!(counters(&mut device.link.counters.all()))))
        .collect();
    let rings: Vec<_> = rings.iter().map(super::ps::ring_json).collect();
    json!({ "devices": devices, "processors": counters(&mut softnet.all().into_iter()), "rings": rings })
}
