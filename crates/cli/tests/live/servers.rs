//! Unmodified servers whose sockets are flows: those that options, listeners on all addresses and shared ports kept from
//! starting. Each is skipped where it is not installed.

use crate::flows::interface_with;
use crate::net::*;
use crate::unmodified::{are_installed, far, nginx_folders, run, with_program};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a program on the far side until it succeeds.
fn far_succeeds(net: &Net, words: &[&str]) -> Output {
    let mut output = None;
    until(&format!("{words:?} succeeds"), || {
        output = Some(far(net, words).end());
        output.as_ref().is_some_and(|output| output.status.success())
    });
    output.unwrap()
}

fn make(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sshd_takes_commands() {
    // It wants this folder, and is run as root: only root may become another user.
    if !are_installed(&["sshd", "ssh", "ssh-keygen"])
        || !Path::new("/run/sshd").is_dir() && std::fs::create_dir("/run/sshd").is_err()
    {
        return;
    }
    let Some(net) = interface_with(&[]) else { return };
    let path = |name: &str| net.path(name).display().to_string();
    let (host, user) = (path("host_key"), path("user_key"));
    for key in [&host, &user] {
        make(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]);
    }
    std::fs::copy(format!("{user}.pub"), path("authorized")).unwrap();
    let configuration = format!(
        "Port 2222\nListenAddress 10.0.0.2\nHostKey {host}\nAuthorizedKeysFile {}\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nPidFile {}\n",
        path("authorized"),
        path("pid")
    );
    std::fs::write(net.path("sshd_config"), configuration).unwrap();
    let mut command = run(&net, &["/usr/sbin/sshd", "-D", "-e", "-f", &path("sshd_config")]);
    let sshd = Running::start({
        command.uid(0).gid(0);
        command
    });
    let ssh = [
        "ssh",
        "-i",
        &user,
        "-p",
        "2222",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "BatchMode=yes",
        "-o",
        "IdentitiesOnly=yes",
        "root@10.0.0.2",
        "echo $SSH_CONNECTION; head -c 3000000 /dev/zero",
    ];
    let output = far_succeeds(&net, &ssh);
    let said = String::from_utf8_lossy(&output.stdout[..30]).into_owned();
    assert!(said.starts_with("10.0.0.1 ") && output.stdout.len() > 3_000_000, "{said}");
    drop(sshd);
}

#[test]
fn a_tls_server_of_python_answers() {
    let Some(net) = with_program(&["python3", "openssl", "curl"]) else { return };
    let (key, certificate) = (net.path("key.pem").display().to_string(), net.path("cert.pem").display().to_string());
    make(&[
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        &key,
        "-out",
        &certificate,
        "-days",
        "2",
        "-subj",
        "/CN=x",
    ]);
    let program = format!(
        "import http.server, ssl\ns = http.server.ThreadingHTTPServer(('0.0.0.0', 7443), http.server.SimpleHTTPRequestHandler)\n\
         c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\nc.load_cert_chain('{certificate}', '{key}')\n\
         s.socket = c.wrap_socket(s.socket, server_side=True)\ns.serve_forever()\n"
    );
    std::fs::write(net.path("file"), vec![b'p'; 1 << 20]).unwrap();
    make(&["chmod", "a+r", &key, &certificate]);
    let server = Running::start(run(&net, &["/usr/bin/python3", "-c", &program]));
    let output = far_succeeds(&net, &["curl", "-sSk", "https://10.0.0.2:7443/file"]);
    assert!(output.stdout == vec![b'p'; 1 << 20]);
    drop(server);
}

#[test]
fn dnsmasq_answers_on_the_address_of_an_interface() {
    let Some(net) = with_program(&["dnsmasq", "python3"]) else { return };
    let pid = format!("--pid-file={}", net.path("pid").display());
    let words = [
        "dnsmasq",
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        "--bind-interfaces",
        "--listen-address=10.0.0.2",
        "--except-interface=lo",
        "--port=5353",
        "--address=/flow.test/10.9.8.7",
        "--user=",
        &pid,
    ];
    let server = Running::start(run(&net, &words));
    let question = "import socket\nq = bytes.fromhex('12340100000100000000000004666c6f77047465737400000100 01'.replace(' ', ''))\n\
                    u = socket.socket(type=socket.SOCK_DGRAM)\nu.settimeout(1)\nu.sendto(q, ('10.0.0.2', 5353))\n\
                    assert u.recv(500).endswith(bytes([10, 9, 8, 7]))\n\
                    t = socket.create_connection(('10.0.0.2', 5353), 1)\nt.sendall(len(q).to_bytes(2, 'big') + q)\n\
                    assert t.recv(500).endswith(bytes([10, 9, 8, 7]))\n";
    far_succeeds(&net, &["/usr/bin/python3", "-c", question]);
    drop(server);
}

#[test]
fn nginx_shares_a_port_among_its_workers() {
    let Some(net) = with_program(&["nginx", "curl"]) else { return };
    let folder = net.path("").display().to_string();
    let temporary = nginx_folders(&folder);
    let configuration = format!(
        "worker_processes 3; pid {folder}/pid; error_log {folder}/errors; daemon off; events {{}}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; {temporary}\n\
           server {{ listen 7081 reuseport so_keepalive=on; location / {{ return 200 $pid; }} }} }}\n"
    );
    std::fs::write(net.path("nginx.conf"), configuration).unwrap();
    let conf = net.path("nginx.conf").display().to_string();
    let nginx = Running::start(run(&net, &["nginx", "-e", "/dev/stderr", "-c", &conf]));
    let mut workers = std::collections::HashSet::new();
    until("each worker answers", || {
        let output = far_succeeds(&net, &["curl", "-sS", "http://10.0.0.2:7081/"]);
        workers.insert(output.stdout);
        workers.len() == 3
    });
    nginx.signal(rustix::process::Signal::TERM);
    assert!(nginx.end().status.success());
}

#[test]
fn a_cluster_of_node_answers() {
    let Some(net) = with_program(&["node", "curl"]) else { return };
    let program = "const cluster = require('cluster'), http = require('http');\n\
                   if (cluster.isPrimary) { cluster.fork(); cluster.fork(); }\n\
                   else http.createServer((_, r) => r.end(String(process.pid))).listen(7082);\n";
    let file = net.path("cluster.js");
    std::fs::write(&file, program).unwrap();
    let server = Running::start(run(&net, &["node", &file.display().to_string()]));
    let mut workers = std::collections::HashSet::new();
    until("each worker answers", || {
        workers.insert(far_succeeds(&net, &["curl", "-sS", "http://10.0.0.2:7082/"]).stdout);
        workers.len() == 2
    });
    drop(server);
}
