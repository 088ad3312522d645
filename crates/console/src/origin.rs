//! Whether a request was meant for this server, and came from its own pages.
//!
//! A page of another site can make a browser send requests here, and by a name whose address it
//! changes (DNS rebinding) it could read the answers. Such a request has that name in `Host`. So
//! only addresses, `localhost` and configured names are taken. What an interface gives is asked
//! for by scripts of the same origin alone, which browsers say in `Sec-Fetch-Site` and `Origin`.

use std::net::{IpAddr, Ipv6Addr};

use crate::http::Request;

/// The host that a request is for, with its port, if it is one that this server may have.
pub fn host<'r>(request: &'r Request, names: &[String]) -> Option<&'r str> {
    let host = request.header("host")?;
    is_own(host, names).then_some(host)
}

fn is_own(host: &str, names: &[String]) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        let port = port.strip_prefix(':').or(port.is_empty().then_some("0"));
        return address.parse::<Ipv6Addr>().is_ok() && port.is_some_and(is_port);
    }
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_name = |known: &str| known.eq_ignore_ascii_case(name);
    is_port(port)
        && (name.parse::<IpAddr>().is_ok()
            || is_name("localhost")
            || names.iter().any(|known| is_name(known)))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a request for data comes from a page of this server, or from no page at all.
pub fn is_same(request: &Request, host: &str, is_encrypted: bool) -> bool {
    let by_site = request.header("sec-fetch-site");
    let scheme = if is_encrypted { "https" } else { "http" };
    let own = format!("{scheme}://{host}");
    by_site.is_none_or(|site| site == "same-origin")
        && request
            .header("origin")
            .is_none_or(|origin| origin.eq_ignore_ascii_case(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_known_names() {
        let names = ["db1.example".to_string()];
        for own in [
            "127.0.0.1:5500",
            "127.0.0.1",
            "localhost:5500",
            "LOCALHOST",
            "[::1]:5500",
            "[::1]",
            "10.0.0.7:443",
            "db1.example:5500",
        ] {
            assert!(is_own(own, &names), "{own}");
        }
        for other in [
            "",
            "evil.example:5500",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:x",
            "127.0.0.1:99999",
            "[::1",
            "[::1]x",
            "[evil]:1",
            "127.0.0.1:5500@evil",
            "db1.example.evil",
        ] {
            assert!(!is_own(other, &names), "{other}");
        }
    }
}
