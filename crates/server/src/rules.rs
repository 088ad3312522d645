//! Rules that say which client is let in and how it proves who it is, in the form of PostgreSQL's
//! `pg_hba.conf`: the first rule that fits decides, and a client that none fits is refused.
//!
//! **Invariant.** Off loopback nobody is let in without TLS and a password or a certificate:
//! [`Rules::parse`] refuses a rule that says otherwise, and [`Rules::find`] finds no rule but
//! `reject` for a client of another machine that is not encrypted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all. Only for clients of this machine.
    Trust,
    /// By its password (SCRAM-SHA-256).
    Scram,
    /// By a certificate whose common name is the user's.
    Certificate,
    Reject,
}

/// The certificate that a client has to show, whatever else it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    None,
    /// One that an authority of `ssl_ca_file` has signed.
    Signed,
    /// A signed one that has the user's name as its common name.
    Named,
}

/// Connections that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Of this machine, encrypted or not.
    Local,
    Host,
    HostSsl,
    HostNoSsl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    All,
    /// A database that has the user's name.
    SameUser,
    Is(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    kind: Kind,
    databases: Vec<Name>,
    users: Vec<Name>,
    /// `None`: any.
    network: Option<Network>,
    pub method: Method,
    pub certificate: Certificate,
}

/// A client that asks to be let in.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub address: IpAddr,
    pub is_encrypted: bool,
    pub user: &'a str,
    pub database: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// One rule a line, or with `;` between them. Without a rule, clients of this machine are
    /// trusted. Clients of the networks come last: encrypted, with a password.
    pub fn parse(text: &str, networks: &[Network]) -> Result<Rules, String> {
        let lines = text.split(['\n', ';']).map(str::trim);
        let mut rules: Vec<Rule> = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| rule(line).map_err(|why| format!("\"{line}\": {why}")))
            .collect::<Result<_, String>>()?;
        if rules.is_empty() {
            rules.push(rule("local all all trust")?);
        }
        for network in networks {
            rules.push(Rule {
                network: Some(*network),
                ..rule("hostssl all all all scram-sha-256")?
            });
        }
        Ok(Rules(rules))
    }

    /// The rule for a client. `None`: it is not let in.
    pub fn find(&self, client: Asking<'_>) -> Option<&Rule> {
        self.0
            .iter()
            .find(|rule| rule.fits(client))
            .filter(|rule| rule.is_safe_for(client))
    }

    /// Whether some client with this address may be let in: others need not be listened to.
    pub fn know(&self, address: IpAddr) -> bool {
        self.0
            .iter()
            .any(|rule| rule.method != Method::Reject && rule.has_address(address.to_canonical()))
    }

    /// Whether any rule is about clients of other machines.
    pub fn reach_out(&self) -> bool {
        self.0
            .iter()
            .any(|rule| rule.method != Method::Reject && rule.kind != Kind::Local && !rule.stays())
    }

    /// Whether a rule needs certificates of clients.
    pub fn need_certificates(&self) -> bool {
        self.0
            .iter()
            .any(|rule| rule.certificate != Certificate::None)
    }
}

impl Rule {
    fn fits(&self, client: Asking<'_>) -> bool {
        let encrypted = match self.kind {
            Kind::Local | Kind::Host => true,
            Kind::HostSsl => client.is_encrypted,
            Kind::HostNoSsl => !client.is_encrypted,
        };
        let named = |names: &[Name], wanted: &str| {
            names.iter().any(|name| match name {
                Name::All => true,
                Name::SameUser => wanted == client.user,
                Name::Is(name) => name == wanted,
            })
        };
        encrypted
            && self.has_address(client.address.to_canonical())
            && named(&self.databases, client.database)
            && named(&self.users, client.user)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        (self.kind != Kind::Local || address.is_loopback())
            && self.network.is_none_or(|n| n.contains(address))
    }

    fn is_safe_for(&self, client: Asking<'_>) -> bool {
        self.method == Method::Reject
            || client.address.to_canonical().is_loopback()
            || client.is_encrypted && self.method != Method::Trust
    }

    /// Whether the rule is about clients of this machine alone.
    fn stays(&self) -> bool {
        let loopback: [Network; 2] = [
            Network::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
            Network::new(Ipv6Addr::LOCALHOST.into(), 128),
        ];
        self.kind == Kind::Local
            || self
                .network
                .is_some_and(|n| loopback.iter().any(|l| l.includes(&n)))
    }
}

fn rule(line: &str) -> Result<Rule, String> {
    let words = words(line)?;
    let mut words = words.iter().map(|(word, quoted)| (word.as_str(), *quoted));
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let kind = match next("the kind of connection")?.0 {
        "local" => Kind::Local,
        "host" => Kind::Host,
        "hostssl" => Kind::HostSsl,
        "hostnossl" => Kind::HostNoSsl,
        other => {
            return Err(format!(
                "\"{other}\" is not local, host, hostssl or hostnossl"
            ));
        }
    };
    let databases = names(next("the database")?, true)?;
    let users = names(next("the user")?, false)?;
    let network = match kind {
        Kind::Local => None,
        _ => match next("the address")?.0 {
            "all" => None,
            "samehost" | "samenet" => {
                return Err("samehost and samenet are not supported: name the network".into());
            }
            text => Some(text.parse()?),
        },
    };
    let (method, implied) = match next("the method")?.0 {
        "trust" => (Method::Trust, Certificate::None),
        "scram-sha-256" => (Method::Scram, Certificate::None),
        "cert" => (Method::Certificate, Certificate::Named),
        "reject" => (Method::Reject, Certificate::None),
        other => {
            return Err(format!(
                "\"{other}\" is not trust, scram-sha-256, cert or reject"
            ));
        }
    };
    let mut rule = Rule {
        kind,
        databases,
        users,
        network,
        method,
        certificate: implied,
    };
    for (option, _) in words {
        rule.certificate = match (option, method) {
            ("clientcert=verify-full", _) => Certificate::Named,
            ("clientcert=verify-ca", Method::Certificate) => {
                return Err("the method cert compares the name: clientcert=verify-full".into());
            }
            ("clientcert=verify-ca", _) => Certificate::Signed,
            _ => return Err(format!("the option \"{option}\" is not known")),
        };
    }
    if rule.certificate != Certificate::None && kind != Kind::HostSsl {
        return Err("a certificate needs hostssl".into());
    }
    let is_open = !rule.stays() && method != Method::Reject;
    if is_open && (method == Method::Trust || kind != Kind::HostSsl) {
        return Err(
            "clients of other machines need hostssl, and scram-sha-256 or cert; for those of this \
             machine write local, or the address 127.0.0.1/32 or ::1/128"
                .into(),
        );
    }
    Ok(rule)
}

fn names((text, quoted): (&str, bool), of_databases: bool) -> Result<Vec<Name>, String> {
    if quoted {
        return Ok(vec![Name::Is(text.to_string())]);
    }
    text.split(',')
        .filter(|name| !name.is_empty())
        .map(|name| match name {
            "all" => Ok(Name::All),
            "sameuser" if of_databases => Ok(Name::SameUser),
            "samerole" | "samegroup" | "replication" if of_databases => {
                Err(format!("the database {name} is not supported"))
            }
            _ if name.starts_with(['+', '@', '/']) => Err(format!(
                "\"{name}\": groups, files and patterns are not supported"
            )),
            name => Ok(Name::Is(name.to_string())),
        })
        .collect()
}

/// The words of a line, and whether each was quoted, which takes its meaning from `all`.
fn words(line: &str) -> Result<Vec<(String, bool)>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, quoted, after) = match rest.strip_prefix('"') {
            Some(inside) => {
                let (word, after) = inside.split_once('"').ok_or("a quote is not closed")?;
                (word, true, after)
            }
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (&rest[..end], false, &rest[end..])
            }
        };
        words.push((word.to_string(), quoted));
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rules: &Rules, address: &str, encrypted: bool, user: &str) -> Option<Method> {
        let client = Asking {
            address: address.parse().unwrap(),
            is_encrypted: encrypted,
            user,
            database: "braid",
        };
        rules.find(client).map(|rule| rule.method)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = "local all root trust # the operator
                     local all all scram-sha-256
                     hostssl all eve all reject
                     hostssl \"all\" all 10.3.0.0/16 cert
                     hostssl braid,other ann,\tbob 10.1.0.0/16 cert";
        assert!(Rules::parse(rules, &[]).is_err(), "a blank in a list");
        let rules = rules.replace(",\t", ",");
        let rules = Rules::parse(&rules, &["10.2.0.0/16".parse().unwrap()]).unwrap();
        for (address, encrypted, user, wanted) in [
            ("127.0.0.1", false, "root", Some(Method::Trust)),
            ("::ffff:127.0.0.1", false, "root", Some(Method::Trust)),
            ("::1", false, "ann", Some(Method::Scram)),
            ("10.1.0.7", true, "ann", Some(Method::Certificate)),
            ("10.1.0.7", true, "eve", Some(Method::Reject)),
            ("10.1.0.7", true, "root", None),
            ("10.1.0.7", false, "ann", None),
            ("10.2.0.7", true, "ann", Some(Method::Scram)),
            ("::ffff:10.2.0.7", true, "ann", Some(Method::Scram)),
            ("10.2.0.7", false, "ann", None),
            // Its rule is about a database of the name "all".
            ("10.3.0.7", true, "ann", None),
        ] {
            let method = found(&rules, address, encrypted, user);
            assert_eq!(method, wanted, "{address} {encrypted} {user}");
        }
        assert!(rules.know("10.1.9.9".parse().unwrap()));
        assert!(!rules.know("192.0.2.1".parse().unwrap()));
        assert!(rules.reach_out() && rules.need_certificates());
    }

    #[test]
    fn without_rules_this_machine_is_trusted_and_nobody_else_let_in() {
        let rules = Rules::parse(" \n", &[]).unwrap();
        assert_eq!(found(&rules, "127.0.0.1", false, "x"), Some(Method::Trust));
        assert_eq!(found(&rules, "10.0.0.1", true, "x"), None);
        assert!(!rules.reach_out() && !rules.need_certificates());
    }

    #[test]
    fn off_loopback_there_is_no_way_around_tls_and_a_password() {
        for open in [
            "host all all 10.0.0.0/8 scram-sha-256",
            "host all all all trust",
            "hostssl all all 0.0.0.0/0 trust",
            "hostnossl all all 10.0.0.0/8 scram-sha-256",
            "host all all ::/0 scram-sha-256",
            "hostssl all all 127.0.0.0/7 trust",
        ] {
            let e = Rules::parse(open, &[]).unwrap_err();
            assert!(e.contains("hostssl") || e.contains("beyond"), "{e}");
        }
        for fine in [
            "host all all 127.0.0.1/32 trust",
            "host all all ::1/128 trust",
            "host all all 10.0.0.0/8 reject",
            "hostssl all all all cert",
            "hostssl all all all scram-sha-256 clientcert=verify-ca",
        ] {
            assert!(Rules::parse(fine, &[]).is_ok(), "{fine}");
        }
        for wrong in [
            "host",
            "host all all",
            "local all all",
            "local all all md5",
            "hostssl all +staff all cert",
            "hostssl all all all cert map=x",
            "hostssl all all all cert clientcert=verify-ca",
            "local all all scram-sha-256 clientcert=verify-full",
            "host all all 10.0.0.1/8 reject",
            "local \"all all trust",
        ] {
            assert!(Rules::parse(wrong, &[]).is_err(), "{wrong}");
        }
    }
}
