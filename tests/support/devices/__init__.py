"""Devices and fleets: packages, upgrades, images, the device's and the fleet's page, and a browser."""
