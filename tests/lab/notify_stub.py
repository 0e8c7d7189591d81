#!/usr/bin/python3
"""org.freedesktop.Notifications on the session bus: each Notify is a line of JSON in the file that's named. Debian's python3-dbus."""
import json
import sys

import dbus
import dbus.service
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib

NAME = "org.freedesktop.Notifications"
DBusGMainLoop(set_as_default=True)


class Notifications(dbus.service.Object):
    shown = 0

    @dbus.service.method(NAME, in_signature="susssasa{sv}i", out_signature="u")
    def Notify(self, app, replaces, icon, summary, body, actions, hints, timeout):
        self.shown += 1
        with open(sys.argv[1], "a") as f:
            f.write(json.dumps({"app": str(app), "summary": str(summary), "body": str(body),
                                "urgency": int(hints.get("urgency", -1))}) + "\n")
        return replaces or self.shown

    @dbus.service.method(NAME, out_signature="as")
    def GetCapabilities(self):
        return ["body", "body-markup", "actions"]

    @dbus.service.method(NAME, out_signature="ssss")
    def GetServerInformation(self):
        return ("stub", "gpustow", "1", "1.2")

    @dbus.service.method(NAME, in_signature="u")
    def CloseNotification(self, shown):
        pass


bus = dbus.SessionBus()
name = dbus.service.BusName(NAME, bus)
Notifications(bus, "/org/freedesktop/Notifications")
print("ready", flush=True)
GLib.MainLoop().run()
