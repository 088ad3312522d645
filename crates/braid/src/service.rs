//! `braid service`: changes and lists the names under which applications connect, and the instances
//! that they reach by them.

use std::path::Path;
use std::process::ExitCode;

use block::InstanceId;
use engine::services::{self, DEFAULT, Service, Services};

use crate::cli::{ServiceCommand, ServiceDefinition};
use crate::control::{State, Status};
use crate::{Failure, advice};

pub fn run(command: &ServiceCommand) -> Result<ExitCode, Failure> {
    match command {
        ServiceCommand::Add(of) => add(of),
        ServiceCommand::Modify(of) => modify(of),
        ServiceCommand::Remove(of) => remove(&of.data.data, &of.name),
        ServiceCommand::List(of) => list(&of.data.data, of.json),
    }
}

fn database(dir: &Path) -> Result<&Path, Failure> {
    advice::need_database(dir)?;
    Ok(dir)
}

fn add(of: &ServiceDefinition) -> Result<ExitCode, Failure> {
    let dir = database(&of.data.data)?;
    if Services::read(dir)?.get(&of.name).is_some() {
        return Err(Failure(format!(
            "there is a service \"{}\" already; change it with: braid service modify",
            of.name
        )));
    }
    define(dir, of)
}

fn modify(of: &ServiceDefinition) -> Result<ExitCode, Failure> {
    let dir = database(&of.data.data)?;
    if Services::read(dir)?.get(&of.name).is_none() {
        return Err(no_service(dir, &of.name));
    }
    define(dir, of)
}

fn define(dir: &Path, of: &ServiceDefinition) -> Result<ExitCode, Failure> {
    let service = Service::new(&of.preferred, &of.available)?;
    services::define(dir, &of.name, Some(service))?;
    list(dir, false)
}

fn remove(dir: &Path, name: &str) -> Result<ExitCode, Failure> {
    match services::define(database(dir)?, name, None)? {
        Some(_) => {
            say!("braid: service \"{name}\" is gone; its connections go on");
            Ok(ExitCode::SUCCESS)
        }
        None => Err(no_service(dir, name)),
    }
}

fn no_service(dir: &Path, name: &str) -> Failure {
    let dir = dir.display();
    Failure(format!(
        "there is no service \"{name}\"; these are there: braid service list --data {dir}"
    ))
}

/// The instances that are up, by their own status files.
pub fn up(all: &[Status]) -> Vec<InstanceId> {
    let open = all.iter().filter(|s| s.state == State::Open);
    open.map(|s| InstanceId(s.instance)).collect()
}

fn list(dir: &Path, json: bool) -> Result<ExitCode, Failure> {
    let all = Services::read(database(dir)?)?;
    let up = up(&Status::read_all(dir)?);
    let numbers = |list: &[InstanceId]| list.iter().map(|k| k.0).collect::<Vec<_>>();
    if json {
        let row = |(name, s): (&str, &Service)| {
            serde_json::json!({
                "name": name,
                "preferred": numbers(&s.preferred),
                "available": numbers(&s.available),
                "runs_on": numbers(&s.runs_on(&up)),
            })
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        say!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "{:<24}{:<13}{:<13}runs on",
        "service",
        "preferred",
        "available"
    );
    say!("{DEFAULT:<24}{:<13}{:<13}{}", "", "", services::list(&up));
    for (name, s) in all.iter() {
        say!(
            "{name:<24}{:<13}{:<13}{}",
            services::list(&s.preferred),
            services::list(&s.available),
            services::list(&s.runs_on(&up))
        );
    }
    Ok(ExitCode::SUCCESS)
}
