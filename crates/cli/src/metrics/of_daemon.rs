//! The counters of the daemon: its clients, its rings, their readers, and the backlogs of the processors.

use super::address::Listener;
use super::server::Server;
use super::text::{Kind, Page};
use capture::protocol::{ClientState, DaemonState};
use capture::registry::{ReaderState, RingState};
use driver::counters::SoftnetCounters;
use std::io;
use std::sync::Arc;

/// Serves them. `state` gives all that root may know.
pub(crate) fn start(listener: Listener, state: impl Fn() -> DaemonState + Send + Sync + 'static) -> io::Result<Server> {
    Server::start(listener, Arc::new(move || Some(page(&state(), &SoftnetCounters::read().unwrap_or_default()))))
}

fn page(state: &DaemonState, softnet: &SoftnetCounters) -> String {
    let mut page = Page::default();
    page.family(Kind::Info, "streamline_daemon", "What confines the daemon.").add(&[("confined", &state.confined)], 1);
    let clients = state.clients.len() as u64;
    page.family(Kind::Gauge, "streamline_daemon_clients", "Connected clients.").add(&[], clients);
    rings(&mut page, state);
    readers(&mut page, state);
    let mut family =
        page.family(Kind::Counter, "streamline_processors_events", "The kernel's backlogs of packets, by counter.");
    for counter in softnet.all() {
        family.add(&[("counter", counter.name)], counter.value);
    }
    page.end()
}

fn rings(page: &mut Page, state: &DaemonState) {
    type Value = fn(&RingState) -> u64;
    const VALUES: [(Kind, &str, &str, Value); 5] = [
        (Kind::Gauge, "streamline_ring_bytes", "Bytes of packets that a ring holds.", |ring| ring.ring_bytes),
        (Kind::Gauge, "streamline_ring_readers", "Readers of a ring.", |ring| ring.readers.len() as u64),
        (Kind::Counter, "streamline_ring_seen_packets", "Packets that a ring's writer saw.", |ring| ring.seen.0),
        (Kind::Counter, "streamline_ring_seen_bytes", "Their bytes.", |ring| ring.seen.1),
        (Kind::Counter, "streamline_ring_written_packets", "Packets written to a ring.", |ring| ring.written),
    ];
    // Rings of a device differ in group and mode; their number tells them apart.
    let labels = |(place, ring): (usize, &RingState)| {
        let number = state.rings[..place].iter().filter(|other| other.device.name == ring.device.name).count();
        (number.to_string(), ring.group.to_string())
    };
    let labels: Vec<(String, String)> = state.rings.iter().enumerate().map(labels).collect();
    for (kind, name, help, value) in VALUES {
        let mut family = page.family(kind, name, help);
        for ((number, group), ring) in labels.iter().zip(&state.rings) {
            family.add(&[("device", &ring.device.name), ("ring", number), ("group", group)], value(ring));
        }
    }
    let mut family =
        page.family(Kind::Gauge, "streamline_ring_statistics", "What a ring's writer and its device count besides.");
    for ((number, group), ring) in labels.iter().zip(&state.rings) {
        for (counter, value) in &ring.statistics {
            let labels = [("device", &*ring.device.name), ("ring", number), ("group", group), ("counter", counter)];
            family.add(&labels, *value);
        }
    }
}

fn readers(page: &mut Page, state: &DaemonState) {
    type Value = fn(&ReaderState) -> u64;
    const VALUES: [(&str, &str, Value); 2] = [
        ("streamline_reader_matched_packets", "Packets that a reader wanted.", |reader| reader.matched),
        ("streamline_reader_lost_packets", "Those of them that it lost.", |reader| reader.lost),
    ];
    for (name, help, value) in VALUES {
        let mut family = page.family(Kind::Counter, name, help);
        for ring in &state.rings {
            for reader in &ring.readers {
                let has_it = |reading: &&ClientState| reading.readers.iter().any(|(id, _)| *id == reader.id);
                let client = state.clients.iter().find(has_it);
                let of = |value: fn(&ClientState) -> i64| {
                    client.map_or_else(String::new, |client| value(client).to_string())
                };
                let (id, process, user) =
                    (reader.id.to_string(), of(|client| client.process.into()), of(|client| client.user.into()));
                let labels =
                    [("device", &*ring.device.name), ("reader", &*id), ("process", &*process), ("user", &*user)];
                family.add(&labels, value(reader));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rings_of_a_device_are_told_apart() {
        let reader = |id, lost| ReaderState { id, bit: 0, matched: 9, lost, asleep: false };
        let ring = |group, readers| RingState {
            device: capture::Device {
                name: "eth0".into(),
                index: 1,
                link_type: 1,
                mtu: 1500,
                how: String::new(),
                copied: false,
            },
            group,
            ring_bytes: 64,
            seen: (10, 600),
            written: 9,
            kept: false,
            readers,
            statistics: vec![("socket.drops".into(), 3)],
        };
        let client = ClientState {
            id: 1,
            process: 77,
            user: 1000,
            purpose: "private".into(),
            since: 0,
            readers: vec![(5, "eth0".into())],
        };
        let rings = vec![ring(0, vec![reader(5, 1)]), ring(0, vec![reader(6, 2)])];
        let state = DaemonState { confined: "nothing".into(), clients: vec![client], rings };
        let page = page(&state, &SoftnetCounters::default());
        for line in [
            r#"streamline_ring_seen_packets_total{device="eth0",ring="0",group="0"} 10"#,
            r#"streamline_ring_seen_packets_total{device="eth0",ring="1",group="0"} 10"#,
            r#"streamline_ring_statistics{device="eth0",ring="1",group="0",counter="socket.drops"} 3"#,
            r#"streamline_reader_lost_packets_total{device="eth0",reader="5",process="77",user="1000"} 1"#,
            r#"streamline_reader_lost_packets_total{device="eth0",reader="6",process="",user=""} 2"#,
            "streamline_daemon_clients 1",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} is missing in:\n{page}");
        }
        assert!(page.ends_with("# EOF\n") && !page.contains("private"));
    }
}
