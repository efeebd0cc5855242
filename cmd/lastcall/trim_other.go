//go:build !linux

package main

func forgetStartup() {}
