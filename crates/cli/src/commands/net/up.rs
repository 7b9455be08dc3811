//! `streamline net up` and `down`: make devices interfaces, and give them back.

use super::{Asking, parse, show};
use crate::exit::Outcome;
use crate::place::DaemonArg;
use flow::{InterfaceState, OpenInterface, Question};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Make a device an interface: the daemon owns it, and applications have flows on it
///
/// The daemon answers for these addresses on the device: to ARP, to Neighbour Discovery and to ping. The host's own stack should
/// have no address there, else both answer. The interface stays until `net down`, or until there was no daemon for 5 s. This takes
/// root.
#[derive(clap::Args)]
#[command(after_help = UP_HELP)]
pub(super) struct UpArgs {
    /// The device, as `streamline devices` lists it
    device: String,

    /// An address with the length of its prefix; may be given several times, and the first is the usual source
    #[arg(long = "addr", value_name = "ADDRESS/BITS", required_unless_present_any = ["share", "dhcp"], value_parser = parse::prefix)]
    addresses: Vec<(IpAddr, u8)>,

    /// The router that takes packets for other networks, one for each IP version; without it, the interface reaches its prefixes only
    #[arg(long = "gateway", value_name = "ADDRESS", value_parser = parse::address)]
    gateways: Vec<IpAddr>,

    /// Have an address of IPv4, its prefix and a router from a DHCP server (RFC 2131), and give them back at `net down`. The command waits
    /// for a server as long as `--wait` says
    #[arg(long)]
    dhcp: bool,

    /// How long the command waits for a DHCP server
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = parse::seconds)]
    wait: Duration,

    /// Leave the device to the host, and take the packets of flows of IPv4 only; addresses, routes and neighbours are the host's
    #[arg(long, conflicts_with_all = ["addresses", "gateways", "dhcp"])]
    share: bool,

    /// Send no faster than a wire of this many bits a second (decimal: 100M, 2.5G); else as fast as the device takes frames
    #[arg(long, value_name = "BITS", value_parser = parse::rate)]
    rate: Option<u64>,

    /// Count preamble, checksum and gap (24 bytes a frame) into the rate, as a wire does
    #[arg(long, requires = "rate")]
    count_gaps: bool,

    /// How to reach the device; else the daemon chooses. `loopback`: there is none, and flows on the interface reach each other only
    #[arg(long, value_name = "WAY", value_parser = ["af_xdp", "af_packet", "tuntap", "loopback"])]
    via: Option<String>,

    #[command(flatten)]
    asking: Asking,
}

const UP_HELP: &str = "\
Examples:
  streamline net up eth1 --addr 10.0.0.2/24
  streamline net up eth1 --addr 10.0.0.2/24 --addr 10.0.1.2/24 --gateway 10.0.0.1
  streamline net up eth1 --addr 10.0.0.2/24 --addr fd00::2/64 --gateway fe80::1
  streamline net up eth1 --dhcp
  streamline net up eth0 --share                         the host uses the device, too
  streamline net up eth1 --addr 10.0.0.2/24 --rate 100M --count-gaps     as slow as Fast Ethernet
  streamline net up tap0 --addr 10.9.0.2/24 --via tuntap                 a device that the daemon makes
  streamline net up test0 --addr 10.9.0.1/24 --via loopback              no device: for tests on one host";

/// How often `net up` checks whether a DHCP server gave an address.
const DHCP_LOOK: Duration = Duration::from_millis(50);

/// Give a device back to the host; flows on it end
#[derive(clap::Args)]
#[command(after_help = DOWN_HELP)]
pub(super) struct DownArgs {
    /// The interface
    device: String,

    #[command(flatten)]
    asking: Asking,
}

const DOWN_HELP: &str = "\
Examples:
  streamline net down eth1
  streamline net down eth1 --json                        what it had counted in the end";

/// Give a flow another share of the wire
///
/// A slice guarantees time of the wire in each period, whatever other flows send. It takes an interface with a rate.
#[derive(clap::Args)]
#[command(after_help = SLICE_HELP)]
pub(super) struct SliceArgs {
    /// The flow, as `streamline net flows` numbers it
    flow: u64,

    /// 4ms/100ms, 4ms/100ms+slack (and unused time of other flows), fair:3 (three times an equal share of the rest), background
    share: String,

    #[command(flatten)]
    daemon: DaemonArg,
}

const SLICE_HELP: &str = "\
Examples:
  streamline net slice 7 4ms/100ms
  streamline net slice 7 fair";

pub(super) fn slice(args: &SliceArgs) -> Outcome {
    let asking = Asking { daemon: args.daemon.clone(), json: false };
    asking.connect("slice")?.change(Question::Share(args.flow, args.share.clone()))
}

pub(super) fn up(args: &UpArgs) -> Outcome {
    let connection = args.asking.connect("up")?;
    connection.change(Question::Up(OpenInterface {
        device: args.device.clone(),
        how: args.via.clone(),
        addresses: args.addresses.clone(),
        gateways: args.gateways.clone(),
        rate: args.rate,
        count_gaps: args.count_gaps,
        dhcp: args.dhcp,
        share: args.share,
    }))?;
    let begun = Instant::now();
    let interfaces = loop {
        let mut interfaces = connection.interfaces()?;
        interfaces.retain(|interface| interface.device == args.device);
        let waits = |interface: &InterfaceState| interface.lease.as_ref().is_some_and(|lease| lease.address.is_none());
        if !interfaces.iter().any(waits) {
            break interfaces;
        }
        if begun.elapsed() > args.wait {
            tell!(
                "warning: no DHCP server gave an address yet; the interface asks on, and `streamline net ls` says how it stands"
            );
            break interfaces;
        }
        std::thread::sleep(DHCP_LOOK);
    };
    // Print the driver and the device's address: they were not on the command line.
    show::print_interfaces(&interfaces, args.asking.json)
}

pub(super) fn down(args: &DownArgs) -> Outcome {
    let connection = args.asking.connect("down")?;
    let mut interfaces = if args.asking.json { connection.interfaces()? } else { Vec::new() };
    interfaces.retain(|interface| interface.device == args.device);
    connection.change(Question::Down(args.device.clone()))?;
    if args.asking.json { show::print_interfaces(&interfaces, true) } else { Ok(()) }
}
