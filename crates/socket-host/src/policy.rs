//! Selects the sockets of a program that become flows, by a file. Each line is a rule, and the first matching rule
//! decides. Sockets without a matching rule stay the kernel's.
//!
//! ```text
//! # Name servers by the kernel, everything else that connects by flows; one port to listen at.
//! kernel  connect  udp  *:53
//! flow    connect  *    10.0.0.0/8
//! flow    bind     tcp  *:8080-8089
//! ```

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// The use of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Connects, or sends a datagram to another host.
    Connect,
    /// Binds an own address.
    Bind,
}

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// A rule. A part that is `None` matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    is_flow: bool,
    act: Option<Act>,
    protocol: Option<Protocol>,
    network: Option<(IpAddr, u8)>,
    ports: RangeInclusive<u16>,
}

/// All rules, in order. The default has none, and makes every possible socket a flow.
#[derive(Clone, Debug, Default)]
pub struct Policy(Option<Vec<Rule>>);

impl Policy {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// The line number, and the error.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            rules.push(Rule::parse(&words).map_err(|why| format!("line {}: {why}", number + 1))?);
        }
        Ok(Policy(Some(rules)))
    }

    /// Whether this socket may become a flow.
    pub(crate) fn permits(&self, act: Act, protocol: Protocol, address: SocketAddr) -> bool {
        let Some(rules) = &self.0 else { return true };
        rules.iter().find(|rule| rule.fits(act, protocol, address)).is_some_and(|rule| rule.is_flow)
    }
}

impl Rule {
    fn parse(words: &[&str]) -> Result<Rule, String> {
        let [action, act, protocol, address] = words else {
            return Err("a rule has four words, as in `flow connect tcp 10.0.0.0/24:443`".into());
        };
        let is_flow = match *action {
            "flow" => true,
            "kernel" => false,
            other => return Err(format!("`{other}` is neither `flow` nor `kernel`")),
        };
        let act = match *act {
            "connect" => Some(Act::Connect),
            "bind" => Some(Act::Bind),
            "*" => None,
            other => return Err(format!("`{other}` is none of `connect`, `bind` and `*`")),
        };
        let protocol = match *protocol {
            "tcp" => Some(Protocol::Tcp),
            "udp" => Some(Protocol::Udp),
            "*" => None,
            other => return Err(format!("`{other}` is none of `tcp`, `udp` and `*`")),
        };
        let (network, ports) = split_ports(address);
        let ports = ports.map_or(Some(0..=u16::MAX), read_ports);
        let ports = ports.ok_or_else(|| format!("`{address}`: a port is 0 to 65535, a range is as in 8000-8009"))?;
        let network = match network {
            "*" => None,
            text => Some(read_network(text).ok_or_else(|| {
                format!(
                    "`{text}` is no address or network; those of IPv6 with a port stand in brackets: [fd00::]/8:443"
                )
            })?),
        };
        Ok(Rule { is_flow, act, protocol, network, ports })
    }

    fn fits(&self, act: Act, protocol: Protocol, address: SocketAddr) -> bool {
        self.act.is_none_or(|one| one == act)
            && self.protocol.is_none_or(|one| one == protocol)
            && self.ports.contains(&address.port())
            && self.network.is_none_or(|network| flow::holds(network, address.ip()))
    }
}

/// Network and ports of `10.0.0.0/8:443`, `*:53`, `[fd00::]/8:443`, `fd00::/8`.
fn split_ports(text: &str) -> (&str, Option<&str>) {
    let is_bare = text.matches(':').count() > 1 && !text.starts_with('[');
    match text.rsplit_once(':') {
        Some((network, ports)) if !is_bare && !ports.contains(']') => (network, Some(ports)),
        _ => (text, None),
    }
}

fn read_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = first.parse().ok()?..=last.parse().ok()?;
    (!ports.is_empty()).then_some(ports)
}

fn read_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = inner.unwrap_or(address).parse().ok()?;
    let most = flow::bits(address);
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
    Some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let text = "# comment\nkernel connect udp *:53\nflow connect * 10.0.0.0/8 # all\n\nflow bind tcp *:8080-8089\n\
                    flow * udp [fd00::]/8:443\nkernel * * 10.1.0.0/16\nflow * tcp fe80::1\n";
        let policy = Policy::parse(text).unwrap();
        let rows = [
            (Act::Connect, Protocol::Udp, "10.0.0.1:53", false),
            (Act::Connect, Protocol::Tcp, "10.0.0.1:53", true),
            (Act::Connect, Protocol::Tcp, "10.1.0.1:80", true),
            (Act::Connect, Protocol::Tcp, "11.0.0.1:80", false),
            (Act::Bind, Protocol::Tcp, "0.0.0.0:8080", true),
            (Act::Bind, Protocol::Tcp, "0.0.0.0:8090", false),
            (Act::Bind, Protocol::Udp, "0.0.0.0:8080", false),
            (Act::Bind, Protocol::Udp, "[fdff::1]:443", true),
            (Act::Bind, Protocol::Udp, "[fe00::1]:443", false),
            (Act::Connect, Protocol::Tcp, "[fe80::1]:9", true),
            (Act::Connect, Protocol::Tcp, "[fe80::2]:9", false),
        ];
        for (act, protocol, address, permitted) in rows {
            assert_eq!(
                policy.permits(act, protocol, address.parse().unwrap()),
                permitted,
                "{act:?} {protocol:?} {address}"
            );
        }
        assert!(Policy::default().permits(Act::Bind, Protocol::Tcp, "1.2.3.4:5".parse().unwrap()));
        assert!(!Policy::parse("").unwrap().permits(Act::Bind, Protocol::Tcp, "1.2.3.4:5".parse().unwrap()));
    }

    #[test]
    fn mistakes_have_a_line_and_a_word() {
        let rows = [
            ("flow connect tcp", "line 1: a rule has four words"),
            ("\nallow connect tcp *", "line 2: `allow` is neither"),
            ("flow listen tcp *", "`listen` is none of"),
            ("flow bind sctp *", "`sctp` is none of"),
            ("flow bind tcp 10.0.0.0/33", "`10.0.0.0/33` is no address"),
            ("flow bind tcp 10.0.0:80", "`10.0.0` is no address"),
            ("flow bind tcp *:70000", "a port is 0 to 65535"),
            ("flow bind tcp *:9-8", "a port is 0 to 65535"),
            ("flow bind tcp [fd00::/8:1", "is no address"),
        ];
        for (text, expected) in rows {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
