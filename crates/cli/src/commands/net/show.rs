//! `streamline net ls`, `flows`, `neighbours` and `routes` print the state of the daemon's interfaces.

use super::Asking;
use crate::exit::Outcome;
use crate::progress::{bit_rate, count, duration, size};
use crate::table::Table;
use crate::who::Users;
use flow::{FLOWS_NOT_LISTED, LISTENERS_NOT_LISTED, NEIGHBOURS_NOT_LISTED};
use flow::{FlowState, InterfaceState, LeaseState, ListenerState, NeighbourState, RouteState};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// Show the interfaces, and what each has counted
///
/// The numbers of flows and listeners are those of this user's; for root, of all users'.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  streamline net ls
  streamline net ls --json | jq '.interfaces[].counters'")]
pub(super) struct LsArgs {
    #[command(flatten)]
    asking: Asking,
}

/// Show the flows and listeners, with their processes, packets and drops
///
/// Flows and listeners of this user; for root, of all users. Bytes count from the Ethernet header on. `work` is the time that the daemon spent
/// on what was received for the flow, in milliseconds. `waiting` connections of a listener wait for its application to accept them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  streamline net flows
  streamline net flows --json | jq '.flows[] | select(.process == 4711)'")]
pub(super) struct FlowsArgs {
    #[command(flatten)]
    asking: Asking,
}

/// Show the next hops that the interfaces know or have asked for (ARP, Neighbour Discovery)
#[derive(clap::Args)]
#[command(after_help = "Examples:
  streamline net neighbours")]
pub(super) struct NeighboursArgs {
    #[command(flatten)]
    asking: Asking,
}

/// Show where the interfaces send packets, the most specific prefix first
#[derive(clap::Args)]
#[command(after_help = "Examples:
  streamline net routes")]
pub(super) struct RoutesArgs {
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn ls(args: &LsArgs) -> Outcome {
    print_interfaces(&args.asking.connect("ls")?.interfaces()?, args.asking.json)
}

pub(super) fn print_interfaces(interfaces: &[InterfaceState], as_json: bool) -> Outcome {
    if as_json {
        return print_list("interfaces", interfaces.iter().map(interface_json));
    }
    print_tables(interfaces, &interface_tables(interfaces), "", "")
}

pub(super) fn flows(args: &FlowsArgs) -> Outcome {
    let interfaces = args.asking.connect("flows")?.interfaces()?;
    if args.asking.json {
        return crate::print_json(&flows_json(&interfaces));
    }
    let users = Users::read();
    let tables = [flow_table(&interfaces, &users), listener_table(&interfaces, &users)];
    let more = [(FLOWS_NOT_LISTED, "flows"), (LISTENERS_NOT_LISTED, "listeners")]
        .map(|(counter, noun)| more(&interfaces, counter, noun))
        .concat();
    print_tables(&interfaces, &tables, "no flow of yours is open\n", &more)
}

pub(super) fn neighbours(args: &NeighboursArgs) -> Outcome {
    let interfaces = args.asking.connect("neighbours")?.interfaces()?;
    if args.asking.json {
        let of = |one: &InterfaceState| -> Vec<Value> {
            one.neighbours.iter().map(|neighbour| neighbour_json(&one.device, neighbour)).collect()
        };
        return print_list("neighbours", interfaces.iter().flat_map(of));
    }
    let more = more(&interfaces, NEIGHBOURS_NOT_LISTED, "neighbours");
    print_tables(&interfaces, &[neighbour_table(&interfaces)], "no next hop has been asked for yet\n", &more)
}

pub(super) fn routes(args: &RoutesArgs) -> Outcome {
    let interfaces = args.asking.connect("routes")?.interfaces()?;
    if args.asking.json {
        let routes = interfaces.iter().flat_map(|one| one.routes.iter().map(|route| route_json(&one.device, route)));
        return print_list("routes", routes);
    }
    print_tables(&interfaces, &[route_table(&interfaces)], "the interfaces have no routes\n", "")
}

fn print_list(key: &str, entries: impl Iterator<Item = Value>) -> Outcome {
    crate::print_json(&json!({ key: entries.collect::<Vec<_>>() }))
}

/// Prints the tables with `below` under them. If all tables are empty, prints `nothing`.
fn print_tables(interfaces: &[InterfaceState], tables: &[Table], nothing: &str, below: &str) -> Outcome {
    if interfaces.is_empty() {
        let text = "no interface is up; `streamline net up DEVICE --addr ADDRESS/BITS` makes one (as root)\n";
        return crate::print_text(text);
    }
    let texts: Vec<String> = tables.iter().map(Table::text).filter(|text| !text.is_empty()).collect();
    match texts.is_empty() {
        true => crate::print_text(nothing),
        false => crate::print_text(&format!("{}{below}", texts.join("\n"))),
    }
}

fn more(interfaces: &[InterfaceState], counter: &str, noun: &str) -> String {
    let counts = interfaces.iter().flat_map(|one| &one.counters).filter(|(name, _)| name == counter);
    match counts.map(|(_, number)| number).sum() {
        0 => String::new(),
        number => format!("and {} more {noun}: the daemon lists no more than one answer holds\n", count(number)),
    }
}

fn dash() -> String {
    "-".into()
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn prefix((address, bits): &(IpAddr, u8)) -> String {
    format!("{address}/{bits}")
}

/// The interfaces and their counters, without zeroes.
fn interface_tables(interfaces: &[InterfaceState]) -> [Table; 3] {
    let mut table = Table::new(&["interface", "mac", ">mtu", ">rate", ">flows", ">listeners", "addresses", "how"]);
    let mut counters = Table::new(&["interface", "counter", ">count"]);
    for interface in interfaces {
        let away = interface.away.iter().map(|address| format!("({address}: flows wait for it)"));
        let addresses: Vec<String> = interface.addresses.iter().map(prefix).chain(away).collect();
        let how = match &interface.trouble {
            Some(why) => format!("{}, carries nothing: {why}", interface.how),
            None => interface.how.clone(),
        };
        table.row([
            interface.device.clone(),
            mac(interface.mac),
            interface.mtu.to_string(),
            interface.rate.map_or_else(dash, bit_rate),
            count(interface.flows.len() as u64),
            count(interface.listeners.len() as u64),
            addresses.join(","),
            how,
        ]);
        for (name, value) in interface.counters.iter().filter(|(_, value)| *value > 0) {
            counters.row([interface.device.clone(), name.clone(), value.to_string()]);
        }
    }
    [table, lease_table(interfaces), counters]
}

fn lease_table(interfaces: &[InterfaceState]) -> Table {
    let mut table = Table::new(&["interface", "dhcp", "address", "server", "router", ">lease left", ">renewal in"]);
    for (interface, lease) in interfaces.iter().filter_map(|one| one.lease.as_ref().map(|lease| (one, lease))) {
        let address = |address: Option<IpAddr>| address.map_or_else(dash, |address| address.to_string());
        let time = |ms: Option<u64>| match (ms, lease.address) {
            (Some(ms), _) => duration(Duration::from_millis(ms)),
            (None, Some(_)) => "for ever".into(),
            (None, None) => dash(),
        };
        let state = match &lease.trouble {
            Some(why) => format!("{}, unusable: {why}", lease.state),
            None => lease.state.clone(),
        };
        table.row([
            interface.device.clone(),
            state,
            lease.address.as_ref().map_or_else(dash, prefix),
            address(lease.server),
            address(lease.router),
            time(lease.left_ms),
            time(lease.renewal_ms),
        ]);
    }
    table
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        number => number.to_string(),
    }
}

fn flow_table(interfaces: &[InterfaceState], users: &Users) -> Table {
    let mut table = Table::new(&[
        ">flow",
        "interface",
        "protocol",
        "local",
        "remote",
        ">process",
        "user",
        ">received",
        ">bytes",
        ">sent",
        ">bytes",
        ">work ms",
        "slice",
        "dropped",
    ]);
    for (device, flow) in interfaces.iter().flat_map(|one| one.flows.iter().map(|flow| (one.device.clone(), flow))) {
        table.row([
            flow.flow.to_string(),
            device,
            protocol(flow.protocol),
            flow.local.to_string(),
            flow.remote.map_or_else(dash, |remote| remote.to_string()),
            flow.process.to_string(),
            users.name(flow.user),
            count(flow.received),
            size(flow.received_bytes),
            count(flow.sent),
            size(flow.sent_bytes),
            format!("{:.1}", flow.receive_ns as f64 / 1e6),
            flow.share.clone(),
            reasons(&flow.drops),
        ]);
    }
    table
}

fn listener_table(interfaces: &[InterfaceState], users: &Users) -> Table {
    let mut table = Table::new(&[
        ">listener",
        "interface",
        "protocol",
        "local",
        ">process",
        "user",
        ">backlog",
        ">waiting",
        ">accepted",
        "dropped",
    ]);
    for (device, listener) in
        interfaces.iter().flat_map(|one| one.listeners.iter().map(|listener| (one.device.clone(), listener)))
    {
        table.row([
            listener.listener.to_string(),
            device,
            protocol(6),
            listener.local.to_string(),
            listener.process.to_string(),
            users.name(listener.user),
            count(listener.backlog.into()),
            count(listener.waiting.into()),
            count(listener.accepted),
            reasons(&listener.drops),
        ]);
    }
    table
}

fn reasons(drops: &[(String, u64)]) -> String {
    let drops: Vec<String> = drops.iter().map(|(why, number)| format!("{} {why}", count(*number))).collect();
    if drops.is_empty() { dash() } else { drops.join(", ") }
}

fn neighbour_table(interfaces: &[InterfaceState]) -> Table {
    let mut table = Table::new(&["interface", "address", "mac", ">heard of", "state"]);
    for (interface, neighbour) in interfaces.iter().flat_map(|one| one.neighbours.iter().map(move |two| (one, two))) {
        let NeighbourState { address, mac: known, state, age_ms } = neighbour;
        let age = known.map_or_else(dash, |_| format!("{} ago", duration(Duration::from_millis(*age_ms))));
        let mac = known.map_or_else(dash, mac);
        table.row([interface.device.clone(), address.to_string(), mac, age, state.clone()]);
    }
    table
}

fn route_table(interfaces: &[InterfaceState]) -> Table {
    let mut table = Table::new(&["interface", "to", "via"]);
    for (interface, RouteState { to, via }) in
        interfaces.iter().flat_map(|one| one.routes.iter().map(move |route| (one, route)))
    {
        let via = via.map_or_else(|| "(neighbours)".into(), |via| via.to_string());
        table.row([interface.device.clone(), prefix(to), via]);
    }
    table
}

fn tally(counts: &[(String, u64)]) -> Value {
    Value::Object(counts.iter().map(|(name, number)| (name.clone(), (*number).into())).collect())
}

fn interface_json(interface: &InterfaceState) -> Value {
    // `flows` lists each flow and listener; this table only counts them.
    let InterfaceState { device, how, mac: address, mtu, addresses, rate, trouble, counters, flows, listeners, .. } =
        interface;
    json!({
        "interface": device, "how": how, "mac": mac(*address), "mtu": mtu,
        "addresses": addresses.iter().map(prefix).collect::<Vec<_>>(), "rate_bits": rate, "trouble": trouble,
        "away": interface.away.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        "dhcp": interface.lease.as_ref().map(lease_json),
        "counters": tally(counters), "flows": flows.len(), "listeners": listeners.len(),
    })
}

fn lease_json(lease: &LeaseState) -> Value {
    let text = |address: Option<IpAddr>| address.map(|address| address.to_string());
    json!({
        "state": lease.state, "address": lease.address.as_ref().map(prefix), "server": text(lease.server),
        "router": text(lease.router), "left_ms": lease.left_ms, "renewal_ms": lease.renewal_ms, "trouble": lease.trouble,
    })
}

fn flows_json(interfaces: &[InterfaceState]) -> Value {
    let flows = interfaces.iter().flat_map(|one| one.flows.iter().map(|flow| flow_json(&one.device, flow)));
    let listeners =
        interfaces.iter().flat_map(|one| one.listeners.iter().map(|listener| listener_json(&one.device, listener)));
    json!({ "flows": flows.collect::<Vec<_>>(), "listeners": listeners.collect::<Vec<_>>() })
}

fn listener_json(device: &str, listener: &ListenerState) -> Value {
    json!({
        "interface": device, "listener": listener.listener, "protocol": protocol(6), "local": listener.local.to_string(),
        "process": listener.process, "user": listener.user, "backlog": listener.backlog, "waiting": listener.waiting,
        "accepted": listener.accepted, "dropped": tally(&listener.drops),
    })
}

fn flow_json(device: &str, flow: &FlowState) -> Value {
    json!({
        "interface": device, "flow": flow.flow, "protocol": flow.protocol, "local": flow.local.to_string(),
        "remote": flow.remote.map(|remote| remote.to_string()), "process": flow.process, "user": flow.user,
        "received": flow.received, "received_bytes": flow.received_bytes, "sent": flow.sent,
        "sent_bytes": flow.sent_bytes, "receive_ns": flow.receive_ns, "slice": flow.share, "wire": tally(&flow.wire), "dropped": tally(&flow.drops),
    })
}

fn neighbour_json(device: &str, neighbour: &NeighbourState) -> Value {
    json!({
        "interface": device, "address": neighbour.address.to_string(), "mac": neighbour.mac.map(mac),
        "state": neighbour.state, "age_ms": neighbour.mac.map(|_| neighbour.age_ms),
    })
}

fn route_json(device: &str, route: &RouteState) -> Value {
    json!({ "interface": device, "to": prefix(&route.to), "via": route.via.map(|via| via.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn interfaces() -> Vec<InterfaceState> {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let flow = FlowState {
            flow: 7,
            protocol: 17,
            local: SocketAddr::new(address(2), 4000),
            remote: Some(SocketAddr::new(address(3), 53)),
            process: 4711,
            user: u32::MAX,
            received: 1_234_567,
            received_bytes: 3 << 20,
            sent: 5,
            sent_bytes: 300,
            receive_ns: 1_260_000,
            share: "4ms/100ms".into(),
            wire: vec![("slice_ns".into(), 40)],
            drops: vec![("forged".into(), 3), ("no buffer".into(), 1)],
        };
        let listener = ListenerState {
            listener: 9,
            local: SocketAddr::new(address(2), 80),
            process: 4712,
            user: u32::MAX,
            backlog: 128,
            waiting: 2,
            accepted: 5,
            drops: vec![("queue is full".into(), 3)],
        };
        let quiet = FlowState { flow: 8, protocol: 47, remote: None, receive_ns: 0, drops: vec![], ..flow.clone() };
        let asked = NeighbourState { address: address(9), mac: None, state: "asked".into(), age_ms: 9000 };
        let known = NeighbourState {
            address: address(1),
            mac: Some([2, 0, 0, 0, 0, 0xab]),
            state: "reachable".into(),
            ..asked
        };
        vec![
            InterfaceState {
                device: "eth1".into(),
                how: "a packet socket".into(),
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
                addresses: vec![(address(2), 24), (address(77), 32)],
                rate: Some(2_500_000_000),
                is_shared: false,
                trouble: None,
                away: vec![],
                lease: None,
                counters: vec![("received".into(), 1_234_567), ("dropped: no flow".into(), 0)],
                flows: vec![flow, quiet],
                listeners: vec![listener],
                neighbours: vec![known, asked],
                routes: vec![
                    RouteState { to: (address(0), 24), via: None },
                    RouteState { to: (IpAddr::from([0; 4]), 0), via: Some(address(1)) },
                ],
            },
            InterfaceState {
                device: "tap0".into(),
                how: "tuntap".into(),
                mac: [2, 0, 0, 0, 0, 2],
                mtu: 9000,
                addresses: vec![],
                rate: None,
                is_shared: false,
                trouble: Some("it is down".into()),
                away: vec![address(8)],
                lease: Some(LeaseState {
                    state: "bound".into(),
                    address: Some((address(9), 24)),
                    server: Some(address(1)),
                    router: None,
                    left_ms: Some(3_599_999),
                    renewal_ms: None,
                    trouble: None,
                }),
                counters: vec![],
                flows: vec![],
                listeners: vec![],
                neighbours: vec![],
                routes: vec![],
            },
        ]
    }

    #[test]
    fn tables_show_each_thing_in_a_row_and_their_units() {
        assert_eq!(
            interface_tables(&interfaces()).map(|table| table.within(None)).join("\n"),
            "\
interface  mac                 mtu        rate  flows  listeners  addresses                      how
eth1       02:00:00:00:00:01  1500  2.5 Gbit/s      2          1  10.0.0.2/24,10.0.0.77/32       a packet socket
tap0       02:00:00:00:00:02  9000           -      0          0  (10.0.0.8: flows wait for it)  tuntap, carries nothing: it is down

interface  dhcp   address      server    router   lease left  renewal in
tap0       bound  10.0.0.9/24  10.0.0.1  -       59 min 59 s    for ever

interface  counter     count
eth1       received  1234567
"
        );
        assert_eq!(
            flow_table(&interfaces(), &Users::read()).within(None),
            "\
flow  interface  protocol  local          remote       process  user        received    bytes  sent  bytes  work ms  slice      dropped
   7  eth1       udp       10.0.0.2:4000  10.0.0.3:53     4711  4294967295      1.2M  3.0 MiB     5  300 B      1.3  4ms/100ms  3 forged, 1 no buffer
   8  eth1       47        10.0.0.2:4000  -               4711  4294967295      1.2M  3.0 MiB     5  300 B      0.0  4ms/100ms  -
"
        );
        assert_eq!(
            listener_table(&interfaces(), &Users::read()).within(None),
            "\
listener  interface  protocol  local        process  user        backlog  waiting  accepted  dropped
       9  eth1       tcp       10.0.0.2:80     4712  4294967295      128        2         5  3 queue is full
"
        );
        assert_eq!(
            neighbour_table(&interfaces()).within(None),
            "\
interface  address   mac                heard of  state
eth1       10.0.0.1  02:00:00:00:00:ab   9 s ago  reachable
eth1       10.0.0.9  -                         -  asked
"
        );
        assert_eq!(
            route_table(&interfaces()).within(None),
            "\
interface  to           via
eth1       10.0.0.0/24  (neighbours)
eth1       0.0.0.0/0    10.0.0.1
"
        );
    }

    #[test]
    fn flows_that_are_left_out_are_counted() {
        let mut interfaces = interfaces();
        assert_eq!(more(&interfaces, FLOWS_NOT_LISTED, "flows"), "");
        interfaces.iter_mut().for_each(|one| one.counters.push((FLOWS_NOT_LISTED.into(), 21)));
        assert!(more(&interfaces, FLOWS_NOT_LISTED, "flows").starts_with("and 42 more flows"));
        assert_eq!(more(&interfaces, NEIGHBOURS_NOT_LISTED, "neighbours"), "");
    }

    #[test]
    fn documents_have_exact_numbers_and_null_for_what_there_is_not() {
        let [eth1, tap0] = &interfaces()[..] else { panic!("two") };
        assert_eq!(
            interface_json(eth1),
            json!({
                "interface": "eth1", "how": "a packet socket", "mac": "02:00:00:00:00:01", "mtu": 1500,
                "addresses": ["10.0.0.2/24", "10.0.0.77/32"], "rate_bits": 2_500_000_000u64, "trouble": null,
                "away": [], "dhcp": null,
                "counters": { "received": 1_234_567, "dropped: no flow": 0 }, "flows": 2, "listeners": 1,
            })
        );
        assert_eq!(interface_json(tap0)["trouble"], "it is down");
        assert_eq!(interface_json(tap0)["away"], json!(["10.0.0.8"]));
        assert_eq!(
            interface_json(tap0)["dhcp"],
            json!({
                "state": "bound", "address": "10.0.0.9/24", "server": "10.0.0.1", "router": null, "left_ms": 3_599_999,
                "renewal_ms": null, "trouble": null,
            })
        );
        let flow = flow_json("eth1", &eth1.flows[0]);
        assert_eq!(
            (&flow["receive_ns"], &flow["dropped"]),
            (&json!(1_260_000), &json!({ "forged": 3, "no buffer": 1 }))
        );
        assert_eq!(flow_json("eth1", &eth1.flows[1])["remote"], Value::Null);
        assert_eq!(
            flows_json(&interfaces())["listeners"],
            json!([{
                "interface": "eth1", "listener": 9, "protocol": "tcp", "local": "10.0.0.2:80", "process": 4712,
                "user": u32::MAX, "backlog": 128, "waiting": 2, "accepted": 5, "dropped": { "queue is full": 3 },
            }])
        );
        let neighbours: Vec<Value> = eth1.neighbours.iter().map(|one| neighbour_json("eth1", one)).collect();
        assert_eq!((&neighbours[0]["age_ms"], &neighbours[1]["age_ms"]), (&json!(9000), &Value::Null));
        let routes: Vec<Value> = eth1.routes.iter().map(|one| route_json("eth1", one)).collect();
        assert_eq!((&routes[0]["via"], &routes[1]["via"]), (&Value::Null, &json!("10.0.0.1")));
    }
}
