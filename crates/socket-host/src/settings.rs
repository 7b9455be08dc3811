//! Options of a socket: kept from its first state to its last, and passed on to the connections that it accepts.

use rustix::fd::OwnedFd;
use rustix::net::sockopt;
use socket::Marks;
use socket::net::TcpStream;
use socket_calls::Setting;
use std::time::Duration;

/// The options of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings([i64; Setting::ALL.len()]);

impl Default for Settings {
    fn default() -> Settings {
        Settings(Setting::ALL.map(Setting::usual))
    }
}

impl Settings {
    /// With these fields of the IP header: see [`socket_calls::marks`].
    pub(crate) fn with_marks(marks: i64) -> Settings {
        let mut settings = Settings::default();
        for (setting, value) in Setting::MARKS.into_iter().zip(marks.to_le_bytes()) {
            settings.set(setting, i64::from(value));
        }
        settings
    }

    pub(crate) fn get(&self, setting: Setting) -> i64 {
        self.0.get(setting as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, setting: Setting, value: i64) {
        if let Some(kept) = self.0.get_mut(setting as usize) {
            *kept = value;
        }
    }

    pub(crate) fn is_on(&self, setting: Setting) -> bool {
        self.get(setting) != 0
    }

    /// Whether the connection is reset when its program closes it.
    pub(crate) fn resets(&self) -> bool {
        self.get(Setting::Linger) == 0
    }

    /// The fields of the IP header for a flow of this family.
    pub(crate) fn marks(&self, is_ipv4: bool) -> Marks {
        let (class, hops) = if is_ipv4 { (Setting::Service, Setting::Ttl) } else { (Setting::Class, Setting::Hops) };
        let byte = |setting| u8::try_from(self.get(setting)).ok();
        // The driver drops a packet without hops.
        Marks { class: byte(class), hops: byte(hops).filter(|hops| *hops > 0) }
    }

    /// Sets the options of a stream. A broken one does not need them.
    pub(crate) fn apply(&self, stream: &TcpStream) {
        let _ = stream.set_nodelay(self.is_on(Setting::NoDelay));
        let idle = u64::try_from(self.get(Setting::KeepIdle)).unwrap_or(0);
        let _ = stream.set_keepalive(self.is_on(Setting::KeepAlive).then(|| Duration::from_secs(idle)));
        let linger = u64::try_from(self.get(Setting::Linger)).ok();
        let _ = stream.set_linger(linger.map(Duration::from_millis));
        let is_ipv4 = stream.local_addr().is_ok_and(|local| local.is_ipv4());
        let _ = stream.set_marks(self.marks(is_ipv4));
    }

    /// Sets the options of a connection of the kernel. One that has ended does not need them.
    pub(crate) fn apply_to_kernel(&self, socket: &OwnedFd, is_ipv6: bool) {
        let idle = u64::try_from(self.get(Setting::KeepIdle)).unwrap_or(0);
        let _ = sockopt::set_tcp_nodelay(socket, self.is_on(Setting::NoDelay));
        let _ = sockopt::set_tcp_cork(socket, self.is_on(Setting::Cork));
        let _ = sockopt::set_socket_keepalive(socket, self.is_on(Setting::KeepAlive));
        let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle));
        if let Ok(linger) = u64::try_from(self.get(Setting::Linger)) {
            let _ = sockopt::set_socket_linger(socket, Some(Duration::from_millis(linger)));
        }
        let marks = self.marks(true);
        if let (Some(class), Some(hops)) = (marks.class, marks.hops) {
            let _ = sockopt::set_ip_tos(socket, class);
            let _ = sockopt::set_ip_ttl(socket, hops.into());
        }
        if is_ipv6 {
            let marks = self.marks(false);
            let _ = sockopt::set_ipv6_tclass(socket, marks.class.unwrap_or(0).into());
            let _ = sockopt::set_ipv6_unicast_hops(socket, marks.hops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_reads_back_and_marks_the_packets_of_its_family() {
        let mut settings = Settings::with_marks(socket_calls::marks([0x10, 7, 0xb8, 9]));
        assert_eq!(settings.marks(true), Marks { class: Some(0x10), hops: Some(7) });
        assert_eq!(settings.marks(false), Marks { class: Some(0xb8), hops: Some(9) });
        for (at, setting) in Setting::ALL.into_iter().enumerate() {
            settings.set(setting, at as i64 + 100);
        }
        assert!(Setting::ALL.into_iter().enumerate().all(|(at, setting)| settings.get(setting) == at as i64 + 100));
        let usual = Settings::with_marks(socket_calls::marks([0, 64, 0, 64]));
        assert_eq!(usual, Settings::default());
        assert!(!usual.resets() && !usual.is_on(Setting::KeepAlive));
        // A hop limit that no packet can have leaves the stack's own.
        assert_eq!(Settings::with_marks(0).marks(true).hops, None);
    }
}
