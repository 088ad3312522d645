// The pages: each turns the tables that its part of the interface gives into elements.

import { activityPage, history, overview, transfers } from './activity.js';
import { doctor, redo, services } from './instances.js';
import { locks, session, sessions } from './sessions.js';
import { statement, statements } from './statements.js';

export const PAGES = [
  { name: 'overview', title: 'Instances', draw: overview },
  { name: 'activity', title: 'Activity', draw: activityPage, defaults: { minutes: 5 } },
  { name: 'transfers', title: 'Transfers', draw: transfers },
  { name: 'statements', title: 'Statements', draw: statements },
  { name: 'sessions', title: 'Sessions', draw: sessions },
  { name: 'locks', title: 'Locks', draw: locks },
  { name: 'redo', title: 'Log and recovery', draw: redo },
  { name: 'services', title: 'Services', draw: services },
  { name: 'doctor', title: 'Doctor', draw: doctor },
  { name: 'history', under: 'activity', draw: history, defaults: { hours: 24 } },
  { name: 'statement', under: 'statements', draw: statement },
  { name: 'session', under: 'sessions', draw: session },
];
