//! Captures by a packet socket that this process opens itself (packet(7), TPACKET_V3).

use crate::parts::received;
use driver::af_packet::options::{BLOCK_BYTES_MIN, Options};
use driver::af_packet::{Direction, Fanout, FanoutBy, Receiver, Timestamps};
use filter::device::{Choice, Exclusive, Left, snap_len};
use filter::prelude::*;
use std::os::fd::{AsFd, OwnedFd};

/// What `af_packet` is.
pub static KIND: Kind = Kind::new("af_packet", "captures by a packet socket of its own", make)
    .help(
        "A copy of a device's packets, as every Linux offers it; the host sees them as before. `ethernet` is what to use \
         by default: it shares one capture among all readers. This one is for what only a packet socket does: to share a \
         device's packets among several processes (`fanout`), and timestamps of the device's own clock. Needs CAP_NET_RAW.\n\
         \n\
         Processes whose `fanout` is the same number each get a part of the packets: by flow, both directions together, \
         by processor, by queue of the device, or in turn.\n\
         \n\
         `bpf` right behind it is the socket's filter, where programs may be loaded (CAP_BPF): what it rejects is never \
         copied. Nor is what no branch wants where there are several, and what filters such as `tcp` cannot want.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it").required().main(),
        Param::new("direction", ParamType::Choice(&["both", "in", "out"]), "which packets, by where they go")
            .default("both"),
        Param::new("promisc", ParamType::Flag, "packets for others, too").default("yes"),
        Param::new("snaplen", ParamType::Size, "bytes kept of each packet; 0 = all").default("0"),
        Param::new("buffer", ParamType::Size, "bytes of ring").default("8M"),
        Param::new("fanout", ParamType::Number, "number of a group that shares the packets, up to 65535"),
        Param::new("by", ParamType::Choice(&["flow", "cpu", "queue", "turn"]), "who of a group gets a packet")
            .default("flow"),
        Param::new("clock", ParamType::Choice(&["kernel", "device"]), "whose timestamps, where the device has any")
            .default("kernel"),
    ])
    .device(DeviceAccess::Exclusive(Exclusive {
        link_type: received::link_type_of,
        choice: Choice::SocketFilter { ways, open },
    }));

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    open(params, None)
}

/// Which directions the request wants: (received, sent).
fn ways(params: &Params) -> (bool, bool) {
    let direction = params.text("direction");
    (direction != Some("out"), direction != Some("in"))
}

/// Opens the source. `chosen`: the program that chooses packets, by direction too. `None`: the socket gives all packets.
fn open(params: &Params, chosen: Option<(OwnedFd, Left)>) -> Result<Instance, ParamError> {
    let fanout = params.number("fanout").map(|group| {
        let group = u16::try_from(group).map_err(|_| ParamError::new("fanout", "a group's number is at most 65535"))?;
        let by = match params.text("by") {
            Some("cpu") => FanoutBy::Cpu,
            Some("queue") => FanoutBy::Queue,
            Some("turn") => FanoutBy::RoundRobin,
            _ => FanoutBy::Hash,
        };
        // Later fragments have no ports, so the kernel reassembles packets before it hashes them.
        Ok::<_, ParamError>(Fanout { group, by, defragment: by == FanoutBy::Hash })
    });
    let mut options = Options {
        direction: match params.text("direction") {
            Some("in") => Direction::In,
            Some("out") => Direction::Out,
            _ => Direction::Both,
        },
        promiscuous: params.flag("promisc"),
        fanout: fanout.transpose()?,
        timestamps: match params.text("clock") {
            Some("device") => Timestamps::HardwareIfThere,
            _ => Timestamps::Kernel,
        },
        ..Options::default()
    };
    let bytes = usize::try_from(params.number("buffer").unwrap_or_default()).unwrap_or(usize::MAX);
    options.block_bytes = options.block_bytes.min((bytes / 2).next_multiple_of(4096)).max(BLOCK_BYTES_MIN);
    options.block_count = (bytes / options.block_bytes).max(2);
    let name = params.text("device").unwrap_or_default();
    if chosen.is_some() {
        // The socket takes no packets before the program is loaded.
        options.filter = driver::filter::nothing();
    }
    let receiver = Receiver::open(&received::namespace()?, name, &options).map_err(received::refusal)?;
    let left = match chosen {
        None => None,
        Some((program, left)) => {
            let socket_filter = receiver.socket_filter().map_err(received::refusal)?;
            socket_filter.set_loaded(program.as_fd()).map_err(received::refusal)?;
            Some(left)
        }
    };
    let link = receiver.device().clone();
    received::source(&link, vec![Box::new(receiver)], snap_len(params), left)
}
