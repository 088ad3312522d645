//! Makes the parameters and the configuration of an instance from flags and files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use interconnect::PeerAddress;
use server::{Network, Rules};
use wait::priority::Priority;

use tracing::level_filters::LevelFilter;

use sql::params::{AUTO_FILE, CONFIG_FILE, Context, Instance, PARAMS, Param, ParamError, Source};

use crate::Failure;
use crate::cli::SettingArgs;
use crate::{advice, log, user};

/// The port of instance k is this plus k, unless another is configured.
const BASE_PORT: u16 = 5500;
/// The interconnect port of instance k is this plus k.
const BASE_INTERCONNECT_PORT: u16 = 6500;

/// Gathers the parameters of an instance from `braid.toml`, ALTER SYSTEM SET and flags.
pub fn parameters(args: &SettingArgs, instance: u16) -> Result<Instance, Failure> {
    let dir = &args.data.data;
    let params = Instance::new(Some(dir));
    load_config_file(&params, args)?;
    params.load_auto_file()?;
    let flag = |name: &str, value: Option<String>, flag: &str| match value {
        Some(value) => set(&params, name, &value, Source::CommandLine, flag),
        None => Ok(()),
    };
    flag(
        "listen_addresses",
        args.listen.map(|a| a.to_string()),
        "--listen",
    )?;
    flag("port", args.port.map(|p| p.to_string()), "--port")?;
    flag(
        "buffer_cache_size",
        args.buffer_cache.clone(),
        "--buffer-cache",
    )?;
    let mirror = args
        .redo_mirror
        .as_ref()
        .map(|path| path_text(path))
        .transpose()?;
    flag("redo_mirror", mirror, "--redo-mirror")?;
    for setting in &args.set {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure(format!("--set {setting}: wanted NAME=VALUE")))?;
        set(&params, name.trim(), value, Source::CommandLine, "--set")?;
    }
    flag(
        "interconnect_port",
        args.interconnect_port.map(|p| p.to_string()),
        "--interconnect-port",
    )?;
    flag(
        "interconnect_address",
        args.interconnect_address.map(|a| a.to_string()),
        "--interconnect-address",
    )?;
    flag("interconnect_peers", args.peers.clone(), "--peers")?;
    let given = |name| {
        let source = sql::params::find(name).map_or(Source::Default, |p| params.source(p));
        source != Source::Default
    };
    let interconnect_port = match (given("interconnect_port"), given("port")) {
        (true, _) => of_instance(params.int("interconnect_port"), instance)?,
        // There is most likely another database on this machine, so the port is left to the system.
        (false, true) => 0,
        (false, false) => BASE_INTERCONNECT_PORT + instance,
    };
    let port = match given("port") {
        true => of_instance(params.int("port"), instance)?,
        false => BASE_PORT + instance,
    };
    if given("port") && !given("console_port") {
        // There is most likely another database on this machine, which has the console's port.
        params.state("console_port", "0".to_string());
    }
    if !given("superuser") {
        params.state("superuser", user::superuser());
    }
    if params.int("gcs_server_processes") == 0 {
        params.state("gcs_server_processes", default_lms().to_string());
    }
    params.state("interconnect_port", interconnect_port.to_string());
    params.state("port", port.to_string());
    params.state("instance_number", instance.to_string());
    if let Some(dir) = params.dir().map(|dir| dir.display().to_string()) {
        params.state("data_directory", dir);
    }
    params.state("max_connections", params.int("max_sessions").to_string());
    Ok(params)
}

/// Takes a parameter, or says what it takes.
fn set(
    params: &Instance,
    name: &str,
    value: &str,
    source: Source,
    place: &str,
) -> Result<(), Failure> {
    let taken = params.set(name, value, source, place);
    taken.map_err(|e| advice::of_parameter(&e, name))
}

/// Connections for blocks to each other instance, if no number is configured: each has a receiving
/// thread, one for every four processors.
fn default_lms() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    (processors / 4).clamp(1, 8)
}

/// The port of an instance, from the port of the first. 0 stays "any free one".
fn of_instance(first: i64, instance: u16) -> Result<u16, Failure> {
    match first {
        0 => Ok(0),
        _ => u16::try_from(first + i64::from(instance) - 1)
            .map_err(|_| Failure(format!("there is no port {first} + {}", instance - 1))),
    }
}

fn path_text(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_string)
        .ok_or_else(|| Failure(format!("{}: the path is not valid UTF-8", path.display())))
}

/// Reads `braid.toml`. A file that a flag names must exist.
fn load_config_file(params: &Instance, args: &SettingArgs) -> Result<(), Failure> {
    let path = args
        .config
        .clone()
        .unwrap_or_else(|| args.data.data.join(CONFIG_FILE));
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && args.config.is_none() => {
            return Ok(());
        }
        Err(e) => return Err(Failure(format!("cannot read {place}: {e}"))),
    };
    let table: toml::Table = text.parse().map_err(|e| Failure(format!("{place}: {e}")))?;
    for (name, value) in table {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(switch) => switch.to_string(),
            toml::Value::Array(items) if name.eq_ignore_ascii_case("access_rules") => {
                rule_lines(items).ok_or_else(|| {
                    Failure(format!(
                        "{place}: {name} is a list of rules, each in quotes"
                    ))
                })?
            }
            // Unknown names are reported first: a table is most likely a misplaced heading.
            _ if sql::params::find(&name).is_none() => {
                let unknown = ParamError::Unknown {
                    place,
                    name: name.clone(),
                };
                return Err(advice::of_parameter(&unknown, &name));
            }
            _ => {
                return Err(Failure(format!(
                    "{place}: parameter \"{name}\" takes one value"
                )));
            }
        };
        set(params, &name, &value, Source::ConfigFile, &place)?;
    }
    Ok(())
}

/// Rules, a line each.
fn rule_lines(items: Vec<toml::Value>) -> Option<String> {
    let lines = items.into_iter().map(|item| match item {
        toml::Value::String(line) => Some(line),
        _ => None,
    });
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// The address at which this instance meets the others: that for clients, unless another is
/// configured.
fn interconnect_address(params: &Instance, listen: IpAddr) -> Result<IpAddr, Failure> {
    let text = params.text("interconnect_address");
    match text.trim() {
        "" if listen.is_loopback() => Ok(listen),
        "" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text
            .parse()
            .map_err(|e| Failure(format!("interconnect_address \"{text}\": {e}"))),
    }
}

/// The rules by which clients are let in.
pub fn rules(params: &Instance) -> Result<Rules, Failure> {
    let text = params.text("trusted_clients");
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    let networks: Vec<Network> = parts
        .map(|p| {
            p.parse()
                .map_err(|e| Failure(format!("trusted_clients: {e}")))
        })
        .collect::<Result<_, Failure>>()?;
    let rules = Rules::parse(&params.text("access_rules"), &networks)
        .map_err(|e| Failure(format!("access_rules: {e}")))?;
    if rules.need_certificates() && params.text("ssl_ca_file").is_empty() {
        return Err(Failure(
            "access_rules ask for certificates of clients, so ssl_ca_file has to say who signs them"
                .into(),
        ));
    }
    if rules.reach_out() && !params.is_on("ssl") {
        return Err(Failure(
            "clients of other machines are let in with TLS alone, and ssl is off".into(),
        ));
    }
    Ok(rules)
}

/// Addresses of other instances, as `2=127.0.0.1:6502,3=127.0.0.1:6503`.
fn peers(text: &str) -> Result<Vec<PeerAddress>, Failure> {
    let wrong = |part: &str| {
        Failure(format!(
            "interconnect_peers: \"{part}\" is not K=ADDRESS:PORT"
        ))
    };
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (instance, address) = part.split_once('=').ok_or_else(|| wrong(part))?;
            Ok(PeerAddress {
                instance: block::InstanceId(instance.trim().parse().map_err(|_| wrong(part))?),
                address: address.trim().parse().map_err(|_| wrong(part))?,
            })
        })
        .collect()
}

/// Whether the guard chooses the instance's CPUs. It does if no CPUs are configured.
pub fn leaves_cpus_to_guard(params: &Instance) -> bool {
    params.text("instance_cpus") == SHARED_OUT
        && params.text("lms_cpus").is_empty()
        && params.text("lgwr_cpus").is_empty()
}

/// The CPUs that the instance binds itself to; empty for none.
pub fn instance_cpus(params: &Instance) -> Result<Vec<usize>, Failure> {
    match params.text("instance_cpus").as_str() {
        SHARED_OUT => Ok(Vec::new()),
        _ => cpus(params, "instance_cpus"),
    }
}

/// Where this instance answers Prometheus; none if it does not.
pub fn metrics(params: &Instance, instance: u16) -> Result<Option<SocketAddr>, Failure> {
    let first = params.int("metrics_port");
    if first == 0 {
        return Ok(None);
    }
    let text = params.text("metrics_address");
    let address: IpAddr = (text.parse())
        .map_err(|_| Failure(format!("metrics_address: \"{text}\" is no IP address")))?;
    let port = u16::try_from(first + i64::from(instance) - 1).map_err(|_| {
        Failure(format!(
            "metrics_port: instance {instance} would have no port"
        ))
    })?;
    Ok(Some(SocketAddr::new(address, port)))
}

/// How this instance serves the console; none if it does not.
pub fn console(params: &Instance) -> Result<Option<console::Settings>, Failure> {
    let port = params.int("console_port");
    if port == 0 {
        return Ok(None);
    }
    let text = params.text("console_address");
    let address: IpAddr = (text.parse())
        .map_err(|_| Failure(format!("console_address: \"{text}\" is no IP address")))?;
    let is_safe = address.is_loopback() || rules(params)?.reach_out() && params.is_on("ssl");
    if !is_safe {
        return Err(Failure(format!(
            "console_address: {address} is not a loopback address, and no rule lets in clients of \
             other machines: name their networks in trusted_clients, or in access_rules"
        )));
    }
    let names = params.text("console_host_names");
    let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
    Ok(Some(console::Settings {
        address: SocketAddr::new(address, port as u16),
        host_names: names.map(str::to_string).collect(),
    }))
}

/// Takes over the parameters that ALTER SYSTEM SET has changed meanwhile, on whichever instance,
/// and logs by them.
pub fn follow(params: &Instance) {
    match params.follow_auto_file() {
        Ok(false) => {}
        Ok(true) => log::set_level(log(params).level),
        Err(e) => tracing::warn!("{e}; the parameters stay as they are until the file is mended"),
    }
}

/// The settings of the log of a process that runs with these parameters.
pub fn log(params: &Instance) -> log::Settings {
    log::Settings {
        level: match params.text("log_level").as_str() {
            "error" => LevelFilter::ERROR,
            "warn" => LevelFilter::WARN,
            "debug" => LevelFilter::DEBUG,
            _ => LevelFilter::INFO,
        },
        limits: log::Limits {
            file_bytes: params.int("log_file_size") as u64,
            files: params.int("log_files") as u32,
        },
    }
}

/// Numbers of CPUs, as `0,2-3`.
fn cpus(params: &Instance, name: &str) -> Result<Vec<usize>, Failure> {
    let text = params.text(name);
    let wrong = |part: &str| Failure(format!("{name}: \"{part}\" is not a CPU, nor CPUs as 2-3"));
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    let mut cpus = Vec::new();
    for part in parts {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |n: &str| n.trim().parse::<u16>().map(usize::from);
        match (number(from), number(to)) {
            (Ok(from), Ok(to)) if from <= to => cpus.extend(from..=to),
            _ => return Err(wrong(part)),
        }
    }
    Ok(cpus)
}

/// The value of `instance_cpus` that leaves the CPUs to the guard.
const SHARED_OUT: &str = "shared";

/// The configuration of the engine from the parameters. `listen` is the address for clients.
pub fn engine_config(
    params: &Instance,
    dir: &Path,
    instance: u16,
    listen: IpAddr,
) -> Result<engine::Config, Failure> {
    let bytes = |name| params.int(name) as u64;
    let mirror = params.text("redo_mirror");
    let port = params.int("interconnect_port") as u16;
    let address = interconnect_address(params, listen)?;
    let certificates = params.text("certificate_directory");
    let defaults = engine::Config::new(dir);
    Ok(engine::Config {
        instance,
        interconnect: Some(SocketAddr::new(address, port)),
        certificates: match certificates.is_empty() {
            true => defaults.certificates.clone(),
            false => PathBuf::from(certificates),
        },
        peers: peers(&params.text("interconnect_peers"))?,
        lms: params.int("gcs_server_processes") as u8,
        share_memory: params.is_on("interconnect_memory"),
        gc_defer: Duration::from_micros(params.int("gc_defer_time") as u64),
        affinity: engine::Affinity {
            window: Duration::from_secs(params.int("gc_policy_time") as u64),
            minimum: params.int("gc_policy_minimum") as u32,
            percent: params.int("gc_affinity_ratio") as u32,
        },
        priority: match params.text("background_priority").as_str() {
            "realtime" => Priority::RealTime,
            "slice" => Priority::ShortSlice,
            "ordinary" => Priority::Ordinary,
            _ => Priority::Nice,
        },
        lms_cpus: cpus(params, "lms_cpus")?,
        lgwr_cpus: cpus(params, "lgwr_cpus")?,
        eviction: engine::cluster::Eviction {
            misscount: Duration::from_secs(params.int("css_misscount") as u64),
            fence: engine::cluster::FenceCommand::new(
                &params
                    .text("fence_command")
                    .split_whitespace()
                    .map(str::to_string)
                    .collect::<Vec<_>>(),
            ),
        },
        buffer_bytes: bytes("buffer_cache_size"),
        redo_file_bytes: bytes("redo_file_size"),
        redo_files: bytes("redo_files") as u32,
        redo_mirror: (!mirror.is_empty()).then(|| PathBuf::from(mirror)),
        redo_write_delay: Duration::from_micros(params.int("redo_write_delay") as u64),
        undo_cap_bytes: bytes("undo_cap"),
        recovery_target_bytes: bytes("recovery_target"),
        preallocate_bytes: bytes("preallocate_size"),
        max_sessions: bytes("max_sessions") as u32,
        ..defaults
    })
}

/// Writes a `braid.toml` that lists every parameter of instances with its default, commented out,
/// unless there is a file already.
pub fn write_template(dir: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = match std::fs::File::create_new(dir.join(CONFIG_FILE)) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    };
    writeln!(
        file,
        "# Parameters of this database's instances. ALTER SYSTEM SET ({AUTO_FILE}) and flags override them."
    )?;
    let of_instances = |p: &&Param| matches!(p.context, Context::Start | Context::System);
    for param in PARAMS.iter().filter(of_instances) {
        let value = param.show(param.default);
        writeln!(
            file,
            "\n# {}\n# {} = {}",
            param.description,
            param.name,
            toml::Value::String(value)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DataArgs;

    fn arguments(dir: &Path) -> SettingArgs {
        SettingArgs {
            data: DataArgs {
                data: dir.to_path_buf(),
            },
            config: None,
            listen: None,
            port: None,
            interconnect_port: None,
            interconnect_address: None,
            peers: None,
            buffer_cache: None,
            redo_mirror: None,
            set: Vec::new(),
        }
    }

    #[test]
    fn files_and_flags_come_together() {
        let dir = std::env::temp_dir().join(format!("braid-settings-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write_template(&dir).unwrap();
        let mut args = arguments(&dir);
        let ports = |args: &SettingArgs, k| {
            let p = parameters(args, k).ok().unwrap();
            (p.int("port"), p.int("interconnect_port"))
        };
        assert_eq!(ports(&args, 3), (5503, 6503));
        args.port = Some(7001);
        assert_eq!(ports(&args, 2), (7002, 0), "another database's neighbour");
        args.interconnect_port = Some(7101);
        assert_eq!(ports(&args, 2), (7002, 7102));
        (args.port, args.interconnect_port) = (None, None);
        std::fs::write(
            dir.join(CONFIG_FILE),
            "redo_files = 3\nbuffer_cache_size = \"1GB\"\njit = true\nport = 7000\n",
        )
        .unwrap();
        args.buffer_cache = Some("32MB".into());
        args.set = vec!["max_sessions=7".into()];
        let params = parameters(&args, 1).ok().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let config = engine_config(&params, &dir, 1, loopback).ok().unwrap();
        assert_eq!(
            config.interconnect,
            Some(SocketAddr::new(loopback, 0)),
            "met at the address for clients"
        );
        let outside = IpAddr::from([192, 0, 2, 1]);
        let met_at = |params: &Instance| {
            let config = engine_config(params, &dir, 1, outside).ok().unwrap();
            config.interconnect.unwrap().ip()
        };
        assert_eq!(
            met_at(&params),
            loopback,
            "unless that is not a loopback one"
        );
        args.interconnect_address = Some(outside);
        assert_eq!(met_at(&parameters(&args, 1).ok().unwrap()), outside);
        assert_eq!(
            (config.redo_files, config.buffer_bytes, config.max_sessions),
            (3, 32 << 20, 7)
        );
        assert_eq!(
            (params.int("port"), params.text("max_connections")),
            (7000, "7".to_string())
        );
        for (text, culprit) in [
            ("bufer = 1", "\"bufer\""),
            ("[x]\ny = 1", "\"x\""),
            ("redo_files = 1", "valid range"),
            ("port = 70000", "valid range"),
            ("a = ", "TOML"),
        ] {
            std::fs::write(dir.join(CONFIG_FILE), text).unwrap();
            let Err(Failure(message)) = parameters(&args, 1) else {
                panic!("{text} was taken")
            };
            assert!(
                message.contains(culprit) && message.contains(CONFIG_FILE),
                "{message}"
            );
        }
        let with = |text: &str| {
            std::fs::write(dir.join(CONFIG_FILE), text).unwrap();
            parameters(&args, 1).and_then(|params| rules(&params))
        };
        let listed = with(
            "access_rules = [\n  \"local all all trust\",\n  \"hostssl all all all scram-sha-256\",\n]\n",
        );
        assert!(listed.ok().unwrap().reach_out());
        for (text, culprit) in [
            ("access_rules = [1]", "each in quotes"),
            ("access_rules = \"host all all all trust\"", "need hostssl"),
            (
                "trusted_clients = \"10.0.0.0/8\"\nssl = false",
                "ssl is off",
            ),
            ("access_rules = \"hostssl all all all cert\"", "ssl_ca_file"),
        ] {
            let Err(Failure(message)) = with(text) else {
                panic!("{text} was taken")
            };
            assert!(message.contains(culprit), "{message}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        let found = peers("2=127.0.0.1:6502, 3=127.0.0.1:6503").ok().unwrap();
        assert_eq!(
            found
                .iter()
                .map(|p| (p.instance.0, p.address.port()))
                .collect::<Vec<_>>(),
            [(2, 6502), (3, 6503)]
        );
        assert!(peers("").ok().unwrap().is_empty() && peers("2:127.0.0.1:1").is_err());
    }
}
