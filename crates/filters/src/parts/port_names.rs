//! The usual names of ports: those of IANA's registry of service names that traffic is seen with.

/// Names that hold for TCP and UDP, in the order of the ports.
static NAMES: [(u16, &str); 93] = [
    (7, "echo"),
    (9, "discard"),
    (13, "daytime"),
    (19, "chargen"),
    (20, "ftp-data"),
    (21, "ftp"),
    (22, "ssh"),
    (23, "telnet"),
    (25, "smtp"),
    (37, "time"),
    (43, "whois"),
    (49, "tacacs"),
    (53, "domain"),
    (67, "bootps"),
    (68, "bootpc"),
    (69, "tftp"),
    (70, "gopher"),
    (79, "finger"),
    (80, "http"),
    (88, "kerberos"),
    (102, "iso-tsap"),
    (110, "pop3"),
    (111, "sunrpc"),
    (113, "auth"),
    (119, "nntp"),
    (123, "ntp"),
    (135, "epmap"),
    (137, "netbios-ns"),
    (138, "netbios-dgm"),
    (139, "netbios-ssn"),
    (143, "imap"),
    (161, "snmp"),
    (162, "snmptrap"),
    (179, "bgp"),
    (194, "irc"),
    (389, "ldap"),
    (427, "svrloc"),
    (443, "https"),
    (445, "microsoft-ds"),
    (464, "kpasswd"),
    (465, "submissions"),
    (500, "isakmp"),
    (502, "mbap"),
    (512, "exec"),
    (513, "login"),
    (514, "shell"),
    (515, "printer"),
    (520, "router"),
    (546, "dhcpv6-client"),
    (547, "dhcpv6-server"),
    (554, "rtsp"),
    (587, "submission"),
    (623, "asf-rmcp"),
    (631, "ipp"),
    (636, "ldaps"),
    (646, "ldp"),
    (853, "domain-s"),
    (873, "rsync"),
    (989, "ftps-data"),
    (990, "ftps"),
    (993, "imaps"),
    (995, "pop3s"),
    (1080, "socks"),
    (1194, "openvpn"),
    (1433, "ms-sql-s"),
    (1434, "ms-sql-m"),
    (1521, "oracle"),
    (1701, "l2tp"),
    (1723, "pptp"),
    (1812, "radius"),
    (1813, "radius-acct"),
    (1883, "mqtt"),
    (1900, "ssdp"),
    (2049, "nfs"),
    (2152, "gtp-user"),
    (3128, "squid-http"),
    (3260, "iscsi-target"),
    (3306, "mysql"),
    (3389, "ms-wbt-server"),
    (3478, "stun"),
    (4500, "ipsec-nat-t"),
    (4789, "vxlan"),
    (5060, "sip"),
    (5061, "sips"),
    (5222, "xmpp-client"),
    (5353, "mdns"),
    (5355, "llmnr"),
    (5432, "postgresql"),
    (5900, "rfb"),
    (6379, "redis"),
    (6667, "ircu"),
    (8080, "http-alt"),
    (8883, "secure-mqtt"),
];

/// Names of UDP that differ.
static OF_UDP: [(u16, &str); 3] = [(512, "comsat"), (513, "who"), (514, "syslog")];

/// The name of a port. `None`: it has none here.
pub(crate) fn port_name(port: u16, is_udp: bool) -> Option<&'static str> {
    let of = |names: &'static [(u16, &'static str)]| {
        names.binary_search_by_key(&port, |(port, _)| *port).ok().map(|place| names[place].1)
    };
    of(if is_udp { &OF_UDP } else { &[] }).or_else(|| of(&NAMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_found() {
        for (names, is_udp) in [(&NAMES[..], false), (&OF_UDP[..], true)] {
            assert!(names.iter().all(|(port, name)| port_name(*port, is_udp) == Some(name)), "{names:?} are in order");
        }
        assert_eq!(
            (port_name(53, true), port_name(514, false), port_name(50_000, true)),
            (Some("domain"), Some("shell"), None)
        );
    }
}
