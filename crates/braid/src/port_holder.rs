//! Which program has a port of this machine, so that a start that cannot have the port says whom to
//! stop.
//!
//! The kernel's table of listening sockets (`/proc/net/tcp`) gives the socket's inode, and the open
//! files of processes tell whose it is. Another user's process, and one in another container, stay
//! unknown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::cli;
use crate::control::Status;

/// The state of a socket that listens, in the kernel's tables.
const LISTEN: &str = "0A";

/// The process that has a port.
#[derive(Debug, PartialEq, Eq)]
pub enum Holder {
    /// An instance of Braid with its database directory.
    Instance {
        k: u16,
        pid: u32,
        dir: PathBuf,
    },
    Program {
        name: String,
        pid: u32,
    },
    Unknown,
}

/// The process that listens on `address`, or on all addresses with its port.
pub fn of(address: SocketAddr) -> Holder {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(|t| std::fs::read_to_string(t).unwrap_or_default());
    let listening = tables.iter().flat_map(|table| table.lines().skip(1));
    let inodes: Vec<u64> = listening
        .filter_map(|line| inode_if_in_the_way(line, address))
        .collect();
    let Some(pid) = inodes.iter().find_map(|inode| process_with(*inode)) else {
        return Holder::Unknown;
    };
    if let Some((k, dir)) = instance_of(pid) {
        return Holder::Instance { k, pid, dir };
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim().to_string();
    Holder::Program { name, pid }
}

/// The inode of the socket in a line of the kernel's table, if it listens where `wanted` would.
fn inode_if_in_the_way(line: &str, wanted: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if port != wanted.port() || *fields.get(3)? != LISTEN {
        return None;
    }
    let ip = address_of(ip)?;
    let is_in_the_way = ip == wanted.ip() || ip.is_unspecified() || wanted.ip().is_unspecified();
    is_in_the_way.then(|| fields.get(9)?.parse().ok())?
}

/// An address as the kernel's table shows it: words of four bytes, each as the number that it is on
/// this machine.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |i: usize| u32::from_str_radix(hex.get(i * 8..i * 8 + 8)?, 16).ok();
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes()))),
        32 => {
            let mut bytes = [0; 16];
            for (i, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(i)?.to_ne_bytes());
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// A process that has the socket open.
fn process_with(inode: u64) -> Option<u32> {
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    let has_it = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|f| std::fs::read_link(f.path()).is_ok_and(|to| to == socket))
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    pids.find(has_it)
}

/// The number and the directory of the instance that a process is. Its command line names the
/// directory, and the status file there names the process.
fn instance_of(pid: u32) -> Option<(u16, PathBuf)> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let args: Vec<&str> = line
        .split(|byte| *byte == 0)
        .filter_map(|arg| std::str::from_utf8(arg).ok())
        .collect();
    let joined = || args.iter().find_map(|arg| arg.strip_prefix("--data="));
    let apart = args.iter().position(|arg| *arg == "--data");
    let named = apart
        .and_then(|at| args.get(at + 1).copied())
        .or_else(joined);
    let beside = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let dir = beside.join(named.unwrap_or(cli::DEFAULT_DATA));
    let all = Status::read_all(&dir).ok()?;
    let found = all.iter().find(|s| s.pid == pid && s.is_running())?;
    Some((found.instance, dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "   0: 0100007F:17D4 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0 0 12345 1 0000000000000000 100 0 0 10 0";
        let at = |text: &str| inode_if_in_the_way(line, text.parse().unwrap());
        assert_eq!(at("127.0.0.1:6100"), Some(12345));
        assert_eq!(at("0.0.0.0:6100"), Some(12345));
        assert_eq!(at("127.0.0.2:6100"), None);
        assert_eq!(at("127.0.0.1:6101"), None);
        let connected = line.replace(" 0A ", " 01 ");
        let wanted = "127.0.0.1:6100".parse().unwrap();
        assert_eq!(inode_if_in_the_way(&connected, wanted), None);
        let v6 = address_of("00000000000000000000000001000000");
        assert_eq!(v6, Some("::1".parse().unwrap()));
        assert_eq!(
            address_of("0000000000000000FFFF00000100007F"),
            address_of("0100007F")
        );
    }

    #[test]
    fn a_program_that_listens_is_found() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let Holder::Program { pid, .. } = of(taken.local_addr().unwrap()) else {
            panic!("this process has the port")
        };
        assert_eq!(pid, std::process::id());
    }
}
