//! What a request is answered with: a file of the pages, a login, or the data of a page.

use std::time::Instant;

use serde_json::{Map, Value, json};
use server::{Caller, Door};
use sql::Error;

use crate::doctor::Doctor;
use crate::http::{Arrived, NoRequest, Request, Response};
use crate::listen::Settings;
use crate::pages::Page;
use crate::{assets, origin, pages, table, token};

/// Parameters of the sessions that read for the console. Names are looked up among the views alone.
const PARAMETERS: &[(&str, &str)] = &[
    ("application_name", "braid console"),
    ("default_transaction_read_only", "on"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "10000"),
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO"),
];

const NO_SNAPSHOTS: &str = "There are no snapshots yet: one is taken every snapshot_interval, and \
                            by select create_snapshot().";

/// What the callers of an instance's console are answered by.
pub struct Site {
    door: Door,
    settings: Settings,
    instance: u16,
    doctor: Doctor,
}

impl Site {
    pub fn new(door: Door, settings: Settings, instance: u16) -> Site {
        Site {
            door,
            settings,
            instance,
            doctor: Doctor::default(),
        }
    }

    /// Answers a caller until it leaves.
    pub fn talk(&self, caller: &Caller) {
        let mut arrived = Arrived::default();
        loop {
            let (response, is_last, is_head) = match arrived.request(caller) {
                Ok(request) => {
                    let response = self.answer(caller, &request);
                    let is_last = request.is_last || self.door.is_stopping();
                    (response, is_last, request.method == "HEAD")
                }
                Err(NoRequest::Bad(status)) => (Response::text(status, status), true, false),
                Err(NoRequest::Gone) => return,
            };
            if caller.write_all(&response.bytes(is_last, is_head)).is_err() || is_last {
                return;
            }
        }
    }

    fn answer(&self, caller: &Caller, request: &Request) -> Response {
        let Some(host) = origin::host(request, &self.settings.host_names) else {
            let why = "This host is not known by that name. Use its address, or name it in \
                       console_host_names.";
            return Response::text("421 Misdirected Request", why);
        };
        let is_local = caller.peer().ip().to_canonical().is_loopback();
        if !is_local && !caller.is_encrypted() {
            return to_https(request, host);
        }
        let is_get = matches!(request.method.as_str(), "GET" | "HEAD");
        let Some(interface) = request.path.strip_prefix("/api/") else {
            return match assets::find(&request.path) {
                Some(file) if is_get => file,
                Some(_) => not_allowed("GET, HEAD"),
                None => Response::text("404 Not Found", "There is no such page."),
            };
        };
        if !origin::is_same(request, host, caller.is_encrypted()) {
            let why = "Data is for the console's own pages alone.";
            return Response::text("403 Forbidden", why);
        }
        let answered = match (interface, is_get) {
            ("login", _) if request.method == "POST" => self.login(caller, request),
            ("login", _) => return not_allowed("POST"),
            (name, true) => self.data(caller, request, name),
            (_, false) => return not_allowed("GET, HEAD"),
        };
        answered.unwrap_or_else(|error| match error.sqlstate() {
            // All relations of the pages are views but those of snapshots.
            "42P01" => refused("404 Not Found", "42P01", NO_SNAPSHOTS),
            _ => told(&error),
        })
    }

    /// Gives a token to a user who proves itself.
    fn login(&self, caller: &Caller, request: &Request) -> Result<Response, Error> {
        // Of other sites' forms none can send this kind without asking before.
        if request.header("content-type") != Some("application/json") {
            let why = "A login is sent as application/json.";
            return Ok(Response::text("415 Unsupported Media Type", why));
        }
        let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = |name: &str| sent.get(name).and_then(Value::as_str);
        let (Some(user), password) = (text("user"), text("password").unwrap_or_default()) else {
            return Ok(Response::text("400 Bad Request", "A login names its user."));
        };
        let proof = self.door.prove(caller, user, password)?;
        let made = token::made(&self.door, caller, user, proof)?;
        Ok(Response::json(
            "200 OK",
            &json!({"user": user, "token": made, "seconds": token::LIFE_SECONDS}),
        ))
    }

    /// The data of a page.
    fn data(&self, caller: &Caller, request: &Request, name: &str) -> Result<Response, Error> {
        let token = request.header("authorization");
        let token = token.and_then(|t| t.strip_prefix("Bearer "));
        let said = match token {
            Some(token) => token::opened(&self.door, caller, token)?,
            None => None,
        };
        let Some(said) = said else {
            return Ok(refused("401 Unauthorized", "28000", "Log in."));
        };
        let Some(page) = pages::find(name) else {
            return Ok(refused("404 Not Found", "42P01", "There is no such page."));
        };
        let mut values = Vec::new();
        for parameter in page.parameters {
            match request.parameter(parameter) {
                Some(value) => values.push(Some(value)),
                None => {
                    let why = format!("The page needs the parameter {parameter}.");
                    return Ok(refused("400 Bad Request", "22023", &why));
                }
            }
        }
        self.page(caller, &said, page, &values)
    }

    fn page(
        &self,
        caller: &Caller,
        said: &token::Said,
        page: &Page,
        values: &[Option<&str>],
    ) -> Result<Response, Error> {
        let began = Instant::now();
        let parameters: Vec<(String, String)> = (PARAMETERS.iter())
            .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
            .collect();
        let mut visit = (self.door).visit(caller, (&said.user, said.proof), &parameters)?;
        let mut tables = Map::new();
        for (name, sql) in page.queries {
            let used = &values[..pages::parameters_of(sql)];
            tables.insert((*name).to_string(), table::json(&mut visit.sql, sql, used)?);
        }
        let findings = match page.has_findings {
            true => self.doctor.look(&said.user, &mut visit.sql)?,
            false => Value::Null,
        };
        let notices = visit.sql.take_messages().notices;
        let notices: Vec<String> = notices.into_iter().map(|n| n.message).collect();
        // What was read may be of commits that other instances have not heard of.
        visit.sql.reply_gate().pass();
        drop(visit);
        Ok(Response::json(
            "200 OK",
            &json!({
                "instance": self.instance,
                "user": said.user,
                "warnings": notices,
                "tables": tables,
                "findings": findings,
                "took_ms": began.elapsed().as_secs_f64() * 1e3,
            }),
        ))
    }
}

fn not_allowed(methods: &str) -> Response {
    let why = "The console is read-only.";
    Response::text("405 Method Not Allowed", why).with("Allow", methods)
}

/// A client of another machine comes encrypted or not at all.
fn to_https(request: &Request, host: &str) -> Response {
    match request.method.as_str() {
        "GET" | "HEAD" => {
            let place = format!("https://{host}{}", request.path);
            Response::text("308 Permanent Redirect", "Use https.").with("Location", place)
        }
        _ => Response::text("403 Forbidden", "Clients of other machines use https."),
    }
}

fn refused(status: &'static str, sqlstate: &str, message: &str) -> Response {
    let error = json!({"error": {"sqlstate": sqlstate, "message": message}});
    Response::json(status, &error)
}

/// An error of the database.
fn told(error: &Error) -> Response {
    let status = match error.sqlstate() {
        "42501" => "403 Forbidden",
        state if state.starts_with("28") => "401 Unauthorized",
        state if state.starts_with("22") => "400 Bad Request",
        "53300" => "429 Too Many Requests",
        "57P03" => "503 Service Unavailable",
        _ => "500 Internal Server Error",
    };
    refused(status, error.sqlstate(), error.message())
}
