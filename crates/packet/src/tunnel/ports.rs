//! The UDP ports of tunnels, and which tunnel each belongs to.

/// The tunnels over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Udp {
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GTP-U.
    Gtp,
    /// Teredo.
    Teredo,
    /// L2TP.
    L2tp,
    /// GRE in UDP.
    Gre,
    /// MPLS in UDP.
    Mpls,
}

impl Udp {
    /// All of them, each with its name and its usual ports.
    pub const ALL: [(Udp, &'static str, &'static str); 7] = [
        // 4789 is IANA's, 8472 Linux's, 4790 the generic extension's.
        (Udp::Vxlan, "vxlan", "4789,8472,4790"),
        (Udp::Geneve, "geneve", "6081"),
        (Udp::Gtp, "gtp", "2152"),
        (Udp::Teredo, "teredo", "3544"),
        (Udp::L2tp, "l2tp", "1701"),
        (Udp::Gre, "gre", "4754"),
        (Udp::Mpls, "mpls", "6635"),
    ];
}

const USUAL: [(u16, Udp); 9] = [
    (4789, Udp::Vxlan),
    (8472, Udp::Vxlan),
    (4790, Udp::Vxlan),
    (6081, Udp::Geneve),
    (2152, Udp::Gtp),
    (3544, Udp::Teredo),
    (1701, Udp::L2tp),
    (4754, Udp::Gre),
    (6635, Udp::Mpls),
];

/// The tunnel that usually has this port.
pub fn usual(port: u16) -> Option<Udp> {
    USUAL.iter().find(|(known, _)| *known == port).map(|(_, udp)| *udp)
}

/// A set of ports and their tunnels.
#[derive(Clone, Debug)]
pub struct Ports {
    /// One bit for each port, so that other datagrams cost a single lookup.
    bits: Box<[u64; 1024]>,
    listed: Vec<(u16, Udp)>,
}

impl Default for Ports {
    /// The usual ports.
    fn default() -> Ports {
        Ports::of_each(USUAL)
    }
}

impl Ports {
    /// A set of these ports. If one is given twice, the first counts.
    pub fn of_each(ports: impl IntoIterator<Item = (u16, Udp)>) -> Ports {
        let mut all = Ports { bits: Box::new([0; 1024]), listed: Vec::new() };
        for (port, udp) in ports {
            if !all.has(port) {
                all.bits[usize::from(port >> 6)] |= 1 << (port & 63);
                all.listed.push((port, udp));
            }
        }
        all
    }

    /// Whether the port is in the set.
    #[inline(always)]
    pub fn has(&self, port: u16) -> bool {
        self.bits[usize::from(port >> 6)] >> (port & 63) & 1 == 1
    }

    /// The tunnel of a port.
    pub fn of(&self, port: u16) -> Option<Udp> {
        self.listed.iter().find(|(known, _)| *known == port).map(|(_, udp)| *udp)
    }

    /// All ports, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Udp)> {
        self.listed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_usual_ports_say_what_the_numbers_say() {
        for (udp, name, text) in Udp::ALL {
            for port in text.split(',').map(|port| port.parse().unwrap()) {
                assert_eq!(usual(port), Some(udp), "{name}");
            }
        }
        let (all, listed) = (Ports::default(), Udp::ALL.map(|(_, _, text)| text.split(',').count()));
        assert_eq!(all.iter().count(), listed.iter().sum::<usize>());
        assert!((0..=u16::MAX).all(|port| all.has(port) == usual(port).is_some() && all.of(port) == usual(port)));
    }
}
