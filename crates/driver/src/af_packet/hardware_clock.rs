//! Times from the device's own clock, as long as a receiver wants them: `ioctl(SIOCSHWTSTAMP)`.
//!
//! Stamping is a setting of the device: at the end the earlier one is restored. A killed process leaves it on.

use super::socket::PacketSocket;
use crate::sys::{ioctl, name_bytes, set_option};
use std::io;
use std::os::fd::AsFd;

#[repr(C)]
struct Request {
    name: [libc::c_char; libc::IFNAMSIZ],
    data: *mut libc::hwtstamp_config,
    _rest: [u64; 2],
}

/// `linux/net_tstamp.h`: all received packets.
const ALL_RECEIVED: i32 = 1;
/// `linux/net_tstamp.h`: times of the device's clock, unconverted.
const RAW_HARDWARE: i32 = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;

#[derive(Debug)]
pub(super) struct HardwareClock {
    before: libc::hwtstamp_config,
}

impl HardwareClock {
    /// Switches the device's stamps on and makes the socket use them; an error if the device has no such clock.
    pub(super) fn start(socket: &PacketSocket, device: &str) -> io::Result<HardwareClock> {
        let mut before = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
        command(socket, device, libc::SIOCGHWTSTAMP, &mut before)?;
        let mut wanted = libc::hwtstamp_config { rx_filter: ALL_RECEIVED, ..before };
        command(socket, device, libc::SIOCSHWTSTAMP, &mut wanted)?;
        let clock = HardwareClock { before };
        match set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &RAW_HARDWARE) {
            Ok(()) => Ok(clock),
            Err(error) => {
                clock.stop(socket);
                Err(error)
            }
        }
    }

    /// Restores the earlier setting, if the device still exists.
    pub(super) fn stop(mut self, socket: &PacketSocket) {
        if let Ok(Some((device, _))) = socket.look_up() {
            let _ = command(socket, &device, libc::SIOCSHWTSTAMP, &mut self.before);
        }
    }
}

fn command(
    socket: &PacketSocket,
    device: &str,
    command: libc::c_ulong,
    config: &mut libc::hwtstamp_config,
) -> io::Result<()> {
    let name = name_bytes(device).ok_or(io::ErrorKind::InvalidInput)?;
    let mut request = Request { name, data: config, _rest: [0; 2] };
    // SAFETY: the shape of an ifreq that points to the argument of both commands, which lives for the call.
    unsafe { ioctl(socket.as_fd(), command, &mut request) }
}
