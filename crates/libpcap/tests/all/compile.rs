//! Compiles expressions with the loaded library, and checks the errors without one.

use libpcap::{Lazy, Libpcap, MAX_EXPRESSION_BYTES, MAX_OPTIMISED_BYTES};
use program::cbpf::disassemble;
use program::{Compile, CompileErrorKind, Interpreter};

/// The system's library. `None`: there is none, as standard error says.
fn library() -> Option<Libpcap> {
    Libpcap::load().inspect_err(|error| eprintln!("skipped, no libpcap: {error}")).ok()
}

/// LINKTYPE_ numbers.
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
const RAW: u16 = 101;
const LOOP: u16 = 108;

#[test]
fn programs() {
    let Some(library) = library() else { return };
    assert!(library.describe().starts_with("libpcap version "), "{}", library.describe());
    let check = |expression: &str, link_type, snap_len, expected: &str| {
        let code = library.compile(expression, link_type, snap_len).unwrap();
        assert_eq!(disassemble(&code), expected, "{expression:?}");
    };
    check("", ETHERNET, 65_535, "(000) ret      #65535\n");
    check("", ETHERNET, 0, "(000) ret      #262144\n");
    check("", ETHERNET, u32::MAX, "(000) ret      #262144\n");
    let ip = "(000) ldh      [12]\n(001) jeq      #0x800           jt 2\tjf 3\n(002) ret      #96\n(003) ret      #0\n";
    check("ip", ETHERNET, 96, ip);
    // Raw IP has another number inside the library than in files.
    let raw = "(000) ldb      [0]\n(001) and      #0xf0\n(002) jeq      #0x40            jt 3\tjf 4\n\
               (003) ret      #96\n(004) ret      #0\n";
    check("ip", RAW, 96, raw);
    // The BSDs' and macOS' numbers of IPv6.
    let ip6 = |word: fn(u32) -> u32| {
        let [mac, net, free] = [30, 24, 28].map(|family| format!("#{:#x}", word(family)));
        format!(
            "(000) ld       [0]\n(001) jeq      {mac:<16} jt 4\tjf 2\n(002) jeq      {net:<16} jt 4\tjf 3\n\
             (003) jeq      {free:<16} jt 4\tjf 5\n(004) ret      #96\n(005) ret      #0\n"
        )
    };
    check("ip6", NULL, 96, &ip6(u32::to_be));
    check("ip6", LOOP, 96, &ip6(|family| family));
    // No packet can match: not an error.
    check("ip and not ip", ETHERNET, 96, "(000) ret      #0\n");
    check("tcp and udp and ip", ETHERNET, 96, "(000) ret      #0\n");
}

#[test]
fn errors() {
    let Some(library) = library() else { return };
    let check = |expression: &str, link_type, expected: &str| {
        let error = library.compile(expression, link_type, 0).unwrap_err();
        assert_eq!(error.kind, CompileErrorKind::Syntax, "{error}");
        assert!(error.message.contains(expected), "{expression:.40?}: {error}");
    };
    check("tcp port", ETHERNET, "syntax error");
    check("port 70000", ETHERNET, "port");
    check("host", ETHERNET, "syntax error");
    check("vlan", RAW, "no VLAN support for Raw IP");
    check("ip", 9999, "9999");
    check("ip\0 or tcp", ETHERNET, "NUL character after 2 bytes");
    check(&" ".repeat(MAX_EXPRESSION_BYTES + 1), ETHERNET, "the limit is 16384");
    check(&"(".repeat(MAX_EXPRESSION_BYTES), ETHERNET, "");
}

/// Expressions that are deep, wide or both, at the limits of length: each has to get an answer of some kind soon.
#[test]
fn long_expressions() {
    let Some(library) = library() else { return };
    let join = |count: usize, with: &str, term: &dyn Fn(usize) -> String| -> String {
        let terms: Vec<String> = (0..count).map(term).collect();
        terms.join(with)
    };
    let hosts = join(300, " or ", &|at| format!("host 10.{}.{}.1", at / 250, at % 250));
    assert!(hosts.len() > MAX_OPTIMISED_BYTES && hosts.len() < MAX_EXPRESSION_BYTES);
    let interpreter = Interpreter::from_cbpf(&library.compile(&hosts, RAW, 0).unwrap()).unwrap();
    let mut packet = [0u8; 40];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&[10, 1, 49, 1]);
    assert_ne!(interpreter.run(&packet, 40), 0);
    packet[18] = 50;
    assert_eq!(interpreter.run(&packet, 40), 0);

    let shapes = [
        format!("{}ip", "not ".repeat(4000)),
        format!("{}ip{}", "(".repeat(8000), ")".repeat(8000)),
        format!("{}0{}=1", "ip[".repeat(4000), "]".repeat(4000)),
        format!("ip[0]={}", join(8000, "+", &|_| "1".into())),
        join(1000, " and ", &|_| "vlan".into()),
        join(700, " and ", &|at| format!("(ip[{}]=1)", at % 20)),
    ];
    for expression in shapes {
        match library.compile(&expression, ETHERNET, 0) {
            Ok(code) => drop(Interpreter::from_cbpf(&code)),
            Err(error) => assert!(!error.message.is_empty()),
        }
    }
}

#[test]
fn threads_get_their_own_answers() {
    let Some(library) = library() else { return };
    std::thread::scope(|scope| {
        for port in 1..=8u32 {
            let library = &library;
            scope.spawn(move || {
                for _ in 0..20 {
                    let code = library.compile(&format!("tcp dst port {port}"), ETHERNET, 0).unwrap();
                    assert!(code.iter().any(|instruction| instruction.code == 0x15 && instruction.k == port));
                    let error = library.compile(&format!("nonsense{port}"), ETHERNET, 0).unwrap_err();
                    assert!(
                        error.message.contains(&format!("nonsense{port}")) || error.message.contains("syntax"),
                        "{error}"
                    );
                }
            });
        }
    });
}

#[test]
fn without_a_library() {
    let check = |path: &str, expected: &str| {
        let error = Libpcap::open(path).unwrap_err();
        assert_eq!(error.kind, CompileErrorKind::Unavailable, "{error}");
        assert!(error.message.contains(expected), "{path}: {error}");
    };
    check("/nonexistent/libpcap.so.0.8", "/nonexistent/libpcap.so.0.8");
    check("/dev/null", "/dev/null");
    check("libc.so.6", "this is no libpcap");
    check("with\0nul", "");
}

#[test]
fn lazy() {
    let lazy = Lazy::new();
    match library() {
        Some(library) => {
            assert_eq!(lazy.compile("arp", ETHERNET, 9), library.compile("arp", ETHERNET, 9));
            assert_eq!(lazy.describe(), library.describe());
        }
        None => {
            let error = lazy.compile("arp", ETHERNET, 9).unwrap_err();
            assert_eq!(error.kind, CompileErrorKind::Unavailable);
            assert!(error.message.contains("install"), "{error}");
            assert_eq!(lazy.describe(), error.message);
        }
    }
}
