//! `streamline net addr`, `route` and `move`: change an interface while it is up.

use super::{Asking, parse, show};
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use flow::{Change, Question, RouteState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Add an address to an interface, or take one away
///
/// The interface announces a new address by ARP. Flows and listeners of an address that is taken away wait for its return, for a
/// minute, and end then (EADDRNOTAVAIL). Routes by a gateway in its prefix are in use again when it is back.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = ADDR_HELP)]
pub(super) struct AddrArgs {
    #[command(subcommand)]
    action: AddrAction,
}

const ADDR_HELP: &str = "\
Examples:
  streamline net addr add eth1 10.0.1.2/24
  streamline net addr del eth1 10.0.0.2/24";

#[derive(clap::Subcommand)]
enum AddrAction {
    /// Add an address
    Add(AddressArgs),
    /// Take an address away
    Del(AddressArgs),
}

#[derive(clap::Args)]
struct AddressArgs {
    /// The interface
    device: String,

    /// The address with the length of its prefix
    #[arg(value_name = "ADDRESS/BITS", value_parser = parse::prefix)]
    address: (IpAddr, u8),

    #[command(flatten)]
    daemon: DaemonArg,
}

/// Add a route to an interface, or take one away
///
/// A route decides about each packet when it is sent: flows that are open use a new one at once. The longest prefix decides.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = ROUTE_HELP)]
pub(super) struct RouteArgs {
    #[command(subcommand)]
    action: RouteAction,
}

const ROUTE_HELP: &str = "\
Examples:
  streamline net route add eth1 10.1.0.0/16 via 10.0.0.9
  streamline net route add eth1 default via 10.0.0.1
  streamline net route del eth1 10.1.0.0/16
  streamline net routes                                  which routes there are";

#[derive(clap::Subcommand)]
enum RouteAction {
    /// Add a route
    Add(PrefixArgs),
    /// Take a route away
    Del(PrefixArgs),
}

#[derive(clap::Args)]
struct PrefixArgs {
    /// The interface
    device: String,

    /// The addresses that the route is for, or `default`
    #[arg(value_name = "ADDRESS/BITS", value_parser = destination)]
    to: (IpAddr, u8),

    /// The router, a neighbour; without it the addresses are neighbours
    #[arg(value_names = ["via", "A.B.C.D"], num_args = 2)]
    via: Vec<String>,

    #[command(flatten)]
    daemon: DaemonArg,
}

/// Have an interface go on on another device
///
/// Addresses, routes, flows and listeners go to the other device, which the daemon opens as it opened the first one. The hardware
/// address is the other device's; the interface announces its addresses by ARP. The host has the first device again. If the other device
/// cannot be opened, nothing changes.
#[derive(clap::Args)]
#[command(after_help = MOVE_HELP)]
pub(super) struct MoveArgs {
    /// The interface
    old: String,

    /// The device that it goes on on
    new: String,

    #[command(flatten)]
    asking: Asking,
}

const MOVE_HELP: &str = "\
Examples:
  streamline net move eth1 eth2";

fn destination(text: &str) -> Result<(IpAddr, u8), String> {
    if text == "default" { Ok((Ipv4Addr::UNSPECIFIED.into(), 0)) } else { parse::prefix(text) }
}

fn ask(daemon: DaemonArg, name: &str, device: &str, change: Change) -> Outcome {
    let asking = Asking { daemon, json: false };
    asking.connect(name)?.change(Question::Change(device.into(), change))
}

pub(super) fn addr(args: &AddrArgs) -> Outcome {
    let (AddrAction::Add(given) | AddrAction::Del(given)) = &args.action;
    let AddressArgs { device, address: (address, bits), daemon } = given;
    let change = match args.action {
        AddrAction::Add(_) => Change::AddAddress(*address, *bits),
        AddrAction::Del(_) => Change::RemoveAddress(*address, *bits),
    };
    ask(daemon.clone(), "addr", device, change)
}

pub(super) fn route(args: &RouteArgs) -> Outcome {
    let (RouteAction::Add(given) | RouteAction::Del(given)) = &args.action;
    let PrefixArgs { device, to, via, daemon } = given;
    let via = gateway(via).map_err(CommandError::Wrong)?;
    // `default` has the address family of its next hop.
    let default = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let to =
        if *to == default && via.is_some_and(|via| via.is_ipv6()) { (Ipv6Addr::UNSPECIFIED.into(), 0) } else { *to };
    let route = RouteState { to, via };
    let change = match args.action {
        RouteAction::Add(_) => Change::AddRoute(route),
        RouteAction::Del(_) => Change::RemoveRoute(route),
    };
    ask(daemon.clone(), "route", device, change)
}

/// The router of `via ADDRESS`.
fn gateway(words: &[String]) -> Result<Option<IpAddr>, String> {
    match words {
        [] => Ok(None),
        [via, address] if via == "via" => parse::address(address).map(Some),
        [word, ..] => Err(format!("`{word}`: behind the prefix stands `via ADDRESS`, or nothing")),
    }
}

pub(super) fn move_to(args: &MoveArgs) -> Outcome {
    let connection = args.asking.connect("move")?;
    connection.change(Question::Move(args.old.clone(), args.new.clone()))?;
    let mut interfaces = connection.interfaces()?;
    interfaces.retain(|interface| interface.device == args.new);
    // Print the interfaces: the hardware address has changed.
    show::print_interfaces(&interfaces, args.asking.json)
}
