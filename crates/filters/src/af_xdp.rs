//! Receives by AF_XDP sockets: takes frames from a device before the host's network stack sees them.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::received;
use driver::Receive;
use driver::af_xdp::{Attach, Copying, Device, Options, Program};
use filter::device::{Choice, Exclusive, Left, XdpProgram, snap_len};
use filter::prelude::*;

/// What `af_xdp` is.
pub static KIND: Kind = Kind::new("af_xdp", "takes frames from a device before the host sees them", make)
    .help(
        "What arrives on the device, or on some of its queues, comes here and nowhere else (AF_XDP): connections of the \
         host by this device stand still meanwhile. What the host sends is not seen. The program that does this is the \
         device's only one: where another is attached, the request is refused and the other stays. Frames come without \
         the VLAN tags that the device takes off. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.\n\
         \n\
         `bpf` right behind it is asked there (`explain` shows both in the kernel): then only what it passes is taken, and \
         the rest stays the host's. Where several branches begin with `bpf`, what any of them passes is taken, and each asks \
         again above. Everywhere else it rejects what was taken already.\n\
         \n\
         place=driver wants the program in the device's driver, place=generic behind it, where every device can; \
         copy=never refuses drivers that cannot give their memory away.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it").required().main(),
        Param::new("queues", ParamType::Text, "a queue, a range as 0:3, or a list as \"0,2\"; all if not given"),
        Param::new("place", ParamType::Choice(&["best", "driver", "generic"]), "where the program runs").default("best"),
        Param::new("copy", ParamType::Choice(&["best", "always", "never"]), "are frames copied by the kernel?")
            .default("best"),
        Param::new("promisc", ParamType::Flag, "packets for others, too").default("no"),
        Param::new("snaplen", ParamType::Size, "bytes kept of each packet; 0 = all").default("0"),
        Param::new("buffer", ParamType::Size, "bytes for frames that wait, for each queue").default("16M"),
    ])
    .device(DeviceAccess::Exclusive(Exclusive {
        link_type: received::link_type_of,
        choice: Choice::Xdp { queues, open },
    }));

/// More queues than any device has.
const QUEUE: Meaning = Meaning { what: "a queue", max: 4095, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    open(params, None)
}

/// The device's number of receive queues. Fails when its link type is unknown.
fn queues(params: &Params) -> Result<u32, ParamError> {
    let link = received::look_up(params)?;
    received::link_type(&link).map(|_| link.receive_queues)
}

/// Sets number and size of chunks for `buffer` bytes. A chunk has 2048 bytes where the MTU permits it.
fn sized(options: Options, params: &Params, mtu: u32) -> Result<Options, ParamError> {
    /// Bytes of a chunk beside the MTU: 256 in front of the frame, then the Ethernet header with two VLAN tags.
    const BESIDE: u32 = 256 + 14 + 2 * 4;
    let chunk_bytes = if mtu + BESIDE <= 2048 { 2048 } else { options.chunk_bytes };
    let chunks = params.number("buffer").unwrap_or(0) / u64::from(chunk_bytes);
    match u32::try_from(chunks).ok().and_then(u32::checked_ilog2) {
        Some(log @ 6..=20) => Ok(Options { receive_chunks: 1 << log, chunk_bytes, ..options }),
        _ => Err(ParamError::new("buffer", "the buffer holds at least 64 and at most 1,000,000 frames")),
    }
}

/// Opens the source. `chosen`: the program that chooses frames. `None`: the source takes all frames.
fn open(params: &Params, chosen: Option<(XdpProgram, Left)>) -> Result<Instance, ParamError> {
    let (program, left) = chosen.unzip();
    let wanted = Numbers::from_param(params, "queues", QUEUE)?;
    let queues = wanted.map_or(Vec::new(), |wanted| (0..=QUEUE.max).filter(|queue| wanted.has(*queue)).collect());
    let options = Options {
        queues,
        attach: match params.text("place") {
            Some("driver") => Attach::Native,
            Some("generic") => Attach::Generic,
            _ => Attach::NativeIfThere,
        },
        copying: match params.text("copy") {
            Some("always") => Copying::Always,
            Some("never") => Copying::None,
            _ => Copying::NoneIfThere,
        },
        promiscuous: params.flag("promisc"),
        program: program.map(|XdpProgram { program, sockets }| Program { program, sockets, link: None }),
        ..Options::default()
    };
    let name = params.text("device").unwrap_or_default();
    let options = sized(options, params, received::look_up(params)?.mtu)?;
    let device = Device::open(&received::namespace()?, name, options).map_err(received::refusal)?;
    let receivers = device.queues.into_iter().map(|queue| Box::new(queue.receiver) as Box<dyn Receive>).collect();
    received::source(&device.link, receivers, snap_len(params), left)
}
