//! Shortens states of interfaces so that they fit into one packet.

use crate::message::InterfaceState;
use buffer::control::codec;

/// The counter of an interface's flows that one answer has no room for.
pub const FLOWS_NOT_LISTED: &str = "flows not listed";

/// The counter of its listeners that one answer has no room for.
pub const LISTENERS_NOT_LISTED: &str = "listeners not listed";

/// The counter of its neighbours that one answer has no room for.
pub const NEIGHBOURS_NOT_LISTED: &str = "neighbours not listed";

/// Shortens the states to at most `bytes`. If they are longer, each interface shows the same number of its flows,
/// listeners and neighbours, and counts the rest.
pub fn fit(interfaces: &mut Vec<InterfaceState>, bytes: usize) {
    let is_short = |interfaces: &Vec<InterfaceState>| codec::len(interfaces) <= bytes;
    if is_short(interfaces) {
        return;
    }
    let longest = interfaces
        .iter()
        .map(|interface| interface.flows.len().max(interface.listeners.len()).max(interface.neighbours.len()))
        .max();
    let whole = std::mem::take(interfaces);
    let mut most = longest.unwrap_or(0);
    loop {
        most /= 2;
        *interfaces = whole.iter().map(|interface| shortened(interface, most)).collect();
        if is_short(interfaces) {
            return;
        }
        if most == 0 {
            break;
        }
    }
    // Even the names, counters and routes of all interfaces do not fit.
    while !is_short(interfaces) {
        interfaces.truncate(interfaces.len() / 2);
    }
}

fn shortened(interface: &InterfaceState, most: usize) -> InterfaceState {
    let mut shortened = interface.clone();
    shortened.flows.truncate(most);
    shortened.listeners.truncate(most);
    shortened.neighbours.truncate(most);
    for (name, all, shown) in [
        (FLOWS_NOT_LISTED, interface.flows.len(), shortened.flows.len()),
        (LISTENERS_NOT_LISTED, interface.listeners.len(), shortened.listeners.len()),
        (NEIGHBOURS_NOT_LISTED, interface.neighbours.len(), shortened.neighbours.len()),
    ] {
        let left_out = (all - shown) as u64;
        // The states may have been shortened before.
        match shortened.counters.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += left_out,
            None if left_out > 0 => shortened.counters.push((name.into(), left_out)),
            None => {}
        }
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FlowState, NeighbourState};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    const BYTES: usize = 192 << 10;
    const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn state(device: &str, flows: usize, neighbours: usize) -> InterfaceState {
        let flow = FlowState {
            flow: 1,
            protocol: 17,
            local: NOWHERE,
            remote: None,
            process: 1,
            user: 0,
            received: 0,
            received_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            receive_ns: 0,
            share: String::new(),
            wire: Vec::new(),
            drops: vec![("no buffer".into(), 1)],
        };
        let neighbour =
            NeighbourState { address: Ipv4Addr::LOCALHOST.into(), mac: None, state: "asked".into(), age_ms: 0 };
        InterfaceState {
            device: device.into(),
            how: "a packet socket".into(),
            mac: [0; 6],
            mtu: 1500,
            addresses: vec![],
            rate: None,
            is_shared: false,
            trouble: None,
            away: vec![],
            lease: None,
            counters: vec![],
            flows: vec![flow; flows],
            listeners: vec![],
            neighbours: vec![neighbour; neighbours],
            routes: vec![],
        }
    }

    fn fitting(mut states: Vec<InterfaceState>) -> Vec<InterfaceState> {
        fit(&mut states, BYTES);
        assert!(codec::len(&states) <= BYTES);
        states
    }

    #[test]
    fn a_state_fits_into_a_packet_and_says_what_it_leaves_out() {
        let small = vec![state("a", 3, 2)];
        assert_eq!(fitting(small.clone()), small);
        let shown = fitting(vec![state("a", 100_000, 7), state("b", 3, 0)]);
        let [a, b] = &shown[..] else { panic!("two interfaces") };
        assert_eq!((b.flows.len(), &b.counters), (3, &vec![]), "one interface with many flows hides no other");
        assert!(a.flows.len() > 500 && a.neighbours.len() == 7);
        assert_eq!(a.counters, [(FLOWS_NOT_LISTED.to_string(), 100_000 - a.flows.len() as u64)]);
        // Flows that were left out before are counted, too.
        let mut again = vec![shown[0].clone(); 2];
        fit(&mut again, BYTES);
        assert_eq!(again[0].counters, [(FLOWS_NOT_LISTED.to_string(), 100_000 - again[0].flows.len() as u64)]);
        let many = fitting((0..100_000).map(|at| state(&at.to_string(), 1, 0)).collect());
        assert!(many.len() > 500);
    }
}
